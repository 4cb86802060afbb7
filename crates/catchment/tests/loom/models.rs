//! What the checker runs, once for each way that the files are built.

macro_rules! models {
    () => {
        use growing::{Consumer, growing_queue};
        use handover::Parked;
        use loom::sync::Arc;
        use loom::thread;
        use ready::ReadyQueue;

        /// A stream: what was pushed and done, and the worker's half.
        struct Stream {
            pushed: loom::sync::atomic::AtomicUsize,
            done: std::sync::Mutex<Vec<usize>>,
            parked: Parked<Consumer<usize>>,
        }

        impl Stream {
            fn work(&self, mut delivery: Box<Consumer<usize>>) {
                use loom::sync::atomic::Ordering::Acquire;
                loop {
                    while let Some(block) = delivery.pop() {
                        self.done.lock().unwrap().push(block);
                    }
                    let done = self.done.lock().unwrap().len();
                    let more = || self.pushed.load(Acquire) > done;
                    match self.parked.park(delivery, more) {
                        Some(again) => delivery = again,
                        None => return,
                    }
                }
            }
        }

        /// A receive thread pushes two blocks while a worker finds the stream empty. Whoever has
        /// the stream in the end has seen both.
        pub(crate) fn hand_over() {
            loom::model(|| {
                use loom::sync::atomic::Ordering::Release;
                let (mut blocks, delivery) = growing_queue(1);
                let stream = Arc::new(Stream {
                    pushed: loom::sync::atomic::AtomicUsize::new(0),
                    done: std::sync::Mutex::default(),
                    parked: Parked::new(Box::new(delivery)),
                });
                let delivery = stream.parked.take().unwrap();
                let theirs = stream.clone();
                let worker = thread::spawn(move || theirs.work(delivery));
                for n in 0..2 {
                    blocks.push(n);
                    stream.pushed.store(n + 1, Release);
                    if let Some(delivery) = stream.parked.take() {
                        stream.work(delivery);
                    }
                }
                worker.join().unwrap();
                assert_eq!(*stream.done.lock().unwrap(), [0, 1]);
            });
        }

        /// Three entries go through a queue that begins with room for one.
        pub(crate) fn grow() {
            loom::model(|| {
                let (mut producer, mut consumer) = growing_queue(1);
                let pushing = thread::spawn(move || (0..3).for_each(|n| producer.push(n)));
                let mut popped: Vec<i32> = (0..2).filter_map(|_| consumer.pop()).collect();
                pushing.join().unwrap();
                popped.extend(std::iter::from_fn(|| consumer.pop()));
                assert_eq!(popped, [0, 1, 2]);
            });
        }

        /// So many workers wait for one entry each. One that is forgotten is a deadlock.
        pub(crate) fn wake(workers: usize) {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(if workers > 1 { 2 } else { 3 });
            builder.check(move || {
                let queue = Arc::new(ReadyQueue::new(2, 1));
                let take = |queue: &ReadyQueue<usize>| while queue.pop(|| None).is_none() {};
                let theirs = queue.clone();
                let mut threads = vec![thread::spawn(move || {
                    (0..workers).for_each(|n| theirs.push(n));
                })];
                threads.extend((1..workers).map(|_| {
                    let queue = queue.clone();
                    thread::spawn(move || take(&queue))
                }));
                take(&queue);
                threads.into_iter().for_each(|t| t.join().unwrap());
            });
        }
    };
}
