//! Sends a hundred grey pictures: `cargo run -p catchment --example send`, beside `collect`.
use catchment::source::{DeviceSpec, Source};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    send("127.0.0.1:7117", (0..100).map(|grey| vec![grey; 640 * 480 * 3]))
}

/// Sends the pictures of a camera to the collector there.
pub(crate) fn send(
    collector: &str,
    camera: impl Iterator<Item = Vec<u8>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::builder(collector)
        .device(DeviceSpec::new("cam0").format("640x480:rgb24".parse()?))
        .connect()?;
    let mut cam0 = source.device("cam0")?;
    for picture in camera {
        cam0.frame(picture.len())?.send_bytes(&picture)?;
    }
    source.close(Duration::from_secs(10))?;
    Ok(())
}
