//! Collects frames and says what came: `cargo run -p catchment --example collect`, beside `send`.
use catchment::collector::Collector;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let collector = collect("127.0.0.1:7117")?;
    println!("sources connect to {}; Enter ends", collector.local_addr());
    std::io::stdin().read_line(&mut String::new())?;
    let report = collector.stop();
    println!("{} frames, {} lost", report.totals.frames_received, report.totals.frames_lost);
    Ok(())
}

/// Listens there until the collector that it returns is stopped.
pub(crate) fn collect(listen: &str) -> Result<Collector, Box<dyn std::error::Error>> {
    let collector = Collector::builder(listen)
        .on_frame(|frame| {
            println!("{} {}: {} bytes", frame.device(), frame.packet_number(), frame.bytes())
        })
        .start()?;
    Ok(collector)
}
