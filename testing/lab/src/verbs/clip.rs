//! The clip that the cases send.
use crate::vm::shell;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};

pub(crate) const FRAMES: usize = 50;
const WIDTH: usize = 192;
const HEIGHT: usize = 144;

/// Size of a picture in `yuv420p`.
const FRAME_BYTES: usize = WIDTH * HEIGHT * 3 / 2;

/// A compressed clip with much detail, and its frames as ffmpeg decodes them.
#[derive(Clone, Debug)]
pub(crate) struct Clip {
    pub(crate) path: PathBuf,
    raw: PathBuf,
}

impl Clip {
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let (path, raw) = (folder.join("clip.mp4"), folder.join("clip.yuv"));
        let made = format!(
            "-f lavfi -i mandelbrot=s={WIDTH}x{HEIGHT}:r=25 -vf noise=alls=20:allf=t:all_seed=7 \
             -frames:v {FRAMES} -c:v libx264 -preset ultrafast -pix_fmt yuv420p"
        );
        ffmpeg(&made.split(' ').collect::<Vec<_>>(), &path)?;
        let input = path.to_str().context("the cache is not UTF-8")?;
        ffmpeg(&["-i", input, "-f", "rawvideo"], &raw)?;
        let bytes = std::fs::metadata(&raw)?.len();
        ensure!(bytes == (FRAMES * FRAME_BYTES) as u64, "ffmpeg made {bytes} bytes of the clip");
        let path = path.canonicalize()?;
        Ok(Self { path, raw })
    }

    /// Returns the SHA-256 of its first `parts[0]` frames, followed by its first `parts[1]`, and so on.
    pub(crate) fn sum(&self, parts: &[usize]) -> Result<String> {
        let raw = self.raw.display();
        let part = |frames: &usize| format!("head -c {} '{raw}';", frames * FRAME_BYTES);
        let parts: String = parts.iter().map(part).collect();
        let line = shell::output(&["sh", "-c", &format!("{{ {parts} }} | sha256sum")])?;
        let (sum, _) = line.split_once(' ').context("sha256sum printed nothing")?;
        Ok(sum.to_owned())
    }
}

fn ffmpeg(words: &[&str], to: &Path) -> Result<()> {
    let to = to.to_str().context("the cache is not UTF-8")?;
    let quiet = ["ffmpeg", "-v", "error", "-nostdin", "-y"];
    shell::output(&[&quiet[..], words, &[to]].concat()).map(drop)
}
