//! One application answers another: `cargo run -p catchment-application --example messages serve`, and beside it
//! `cargo run -p catchment-application --example messages ask`, with the host behind it where that is another one. The
//! agent's policy has the applications `store` and `vision`.
use catchment_application::{Application, Connection, Error};

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve("store"),
        ["ask"] => ask("vision", "").map(|answer| println!("{answer}")),
        ["ask", host] => ask("vision", host).map(|answer| println!("{answer}")),
        _ => Err(Error::Agent("usage: messages serve | messages ask [HOST]".to_owned())),
    }
}

/// Answers all who call, each on a thread of its own.
pub(crate) fn serve(application: &str) -> Result<(), Error> {
    let service = Application::open(application)?.serve("store")?;
    loop {
        let caller = service.next()?;
        std::thread::spawn(move || {
            let name = caller.application().to_owned();
            let served = caller.accept().and_then(answer);
            println!("{name}: {served:?}");
        });
    }
}

/// Says what is said, in capitals.
fn answer(mut caller: Connection) -> Result<(), Error> {
    while let Some(message) = caller.recv()? {
        caller.send(&message.to_ascii_uppercase())?;
    }
    Ok(())
}

/// Asks the store of a host.
pub(crate) fn ask(application: &str, host: &str) -> Result<String, Error> {
    let mut store = Application::open(application)?.connect(host, "store")?;
    store.send(b"is anybody there?")?;
    let answer = store.recv()?.ok_or(Error::Closed)?;
    store.close()?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
