//! One application reads and writes memory of another, which takes no part in it: `cargo run -p catchment-application
//! --example regions serve`, and beside it `cargo run -p catchment-application --example regions look`, with the host behind
//! it where that is another one. The agent's policy has the applications `sensor` and `vision`.
use catchment_application::{Application, Connection, Error, Hint, Region, Rights, Service};
use std::time::Duration;

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve("sensor"),
        ["look"] => look("vision", "").map(|value| println!("{value}")),
        ["look", host] => look("vision", host).map(|value| println!("{value}")),
        _ => Err(Error::Agent("usage: regions serve | regions look [HOST]".to_owned())),
    }
}

/// Measures until the agent ends: who calls may read the value, and write how far it goes.
fn serve(application: &str) -> Result<(), Error> {
    let (service, value, most) = offer(application)?;
    let (mut callers, mut now) = (Vec::new(), 0_u64);
    loop {
        now += 1;
        value.write_at(0, &now.to_le_bytes())?;
        let mut limit = [0; 8];
        most.read_at(0, &mut limit)?;
        if now >= u64::from_le_bytes(limit) {
            println!("at the limit: {now}");
        }
        if let Some(caller) = service.next_within(Duration::from_secs(1))? {
            callers.extend(caller.accept().ok());
        }
        callers.retain_mut(is_there);
    }
}

/// Returns whether a caller has neither closed the connection nor ended without that.
fn is_there(caller: &mut Connection) -> bool {
    matches!(caller.recv_within(Duration::ZERO), Ok(Some(_)) | Err(Error::Timeout(_)))
}

/// Offers the two regions.
pub(crate) fn offer(application: &str) -> Result<(Service, Region, Region), Error> {
    let service = Application::open(application)?.serve("sensor")?;
    let value = service.region("value", 8, Rights::Read)?;
    let most = service.region("most", 8, Rights::ReadWrite)?;
    most.write_at(0, &1000_u64.to_le_bytes())?;
    Ok((service, value, most))
}

/// Reads the value of a host's sensor, and halves its limit.
pub(crate) fn look(application: &str, host: &str) -> Result<u64, Error> {
    let vision = Application::open(application)?;
    vision.hint(Hint::Weight(0.5))?;
    let mut sensor = vision.connect(host, "sensor")?;
    let (mut value, mut most) = ([0; 8], [0; 8]);
    sensor.read("value", 0, &mut value)?;
    sensor.read("most", 0, &mut most)?;
    sensor.write("most", 0, &(u64::from_le_bytes(most) / 2).to_le_bytes())?;
    Ok(u64::from_le_bytes(value))
}
