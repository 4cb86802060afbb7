//! Programs in the guest, started and watched from the host.
//!
//! Each connection runs one program. The host sends what to start, then input and signals for it; the
//! guest sends the program's output and, last, how it ended. A program whose connection closes is
//! killed. [`frame`] has the messages, [`server`] runs in the guest, [`process`] on the host.
pub(crate) mod frame;
pub(crate) mod process;
pub(crate) mod server;

pub(crate) const PORT: u16 = 5556;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Start {
    pub(crate) words: Vec<String>,
    /// Working directory; the root directory if empty.
    pub(crate) folder: String,
    pub(crate) environment: Vec<(String, String)>,
    /// Whether the host sends it input; otherwise its stdin is empty.
    pub(crate) has_input: bool,
}

impl Start {
    /// Returns a program in the current folder with our environment.
    ///
    /// Omits variables that are not UTF-8. Adds the superuser's folders to `PATH`: the guest has no
    /// other user.
    pub(crate) fn like_here<T: Into<String>>(words: impl IntoIterator<Item = T>) -> Self {
        let folder = std::env::current_dir().unwrap_or_default();
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name != "PATH");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Self {
            words: words.into_iter().map(Into::into).collect(),
            folder: folder.to_string_lossy().into_owned(),
            environment: variables
                .chain([("PATH".to_owned(), path.trim_start_matches(':').to_owned())])
                .collect(),
            has_input: false,
        }
    }

    pub(crate) fn agent() -> Self {
        Self::like_here(["/usr/bin/python3", "-B", "/run/agent.py"]).with_input()
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_input(self) -> Self {
        Self { has_input: true, ..self }
    }
}

#[derive(
    Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, derive_more::Display,
)]
pub(crate) enum Ended {
    #[display("exit status {_0}")]
    Status(i32),
    #[display("signal {_0}")]
    Signal(i32),
    #[display("{_0}")]
    NotStarted(String),
}
