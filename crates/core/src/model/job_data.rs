//! What a job reads and leaves by name: `${{inputs.x}}` and `${{outputs.y}}` in its command.

use serde::{Deserialize, Serialize};

use super::AssetKind;

/// Names and paths below a container of our own blob storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataLocation {
    pub container: Box<str>,
    /// A blob's name, or what the names of several begin with; without a slash at its end.
    pub path: Box<str>,
}

/// A version of code that clients have put into the blob storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeAsset {
    /// As the user named it.
    pub id: Box<str>,
    pub at: DataLocation,
}

/// What an input or an output is to whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataKind {
    UriFile,
    UriFolder,
    MlTable,
    CustomModel,
    MlflowModel,
    TritonModel,
}

impl DataKind {
    /// A table and a model are folders too.
    pub fn is_file(self) -> bool {
        self == DataKind::UriFile
    }

    /// What keeps it under a name and a version.
    pub fn asset(self) -> AssetKind {
        match self {
            DataKind::UriFile | DataKind::UriFolder | DataKind::MlTable => AssetKind::Data,
            DataKind::CustomModel | DataKind::MlflowModel | DataKind::TritonModel => {
                AssetKind::Model
            }
        }
    }
}

/// How an input is given to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputMode {
    /// A path that can be read. There is no difference here between the two: its files are on the node before it starts.
    ReadOnlyMount,
    Download,
    /// The address itself, for programs that read it by themselves.
    Direct,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputMode {
    /// There is no difference here between the two: what lies in its folder when the job has completed is kept.
    ReadWriteMount,
    Upload,
    Direct,
}

/// Where the bytes of an input are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    Blobs(DataLocation),
    /// Somewhere else: the node fetches it, never the server. The input's own address is where.
    Url,
    /// The same, where the input's own address is the name of an asset or one that is not for the web.
    Web(WebSource),
}

/// What a node fetches, with nobody's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSource {
    /// With `https` or `http`.
    pub url: Box<str>,
    /// All blobs below it, which the account lists for everyone; else one file.
    pub is_folder: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobInput {
    /// A text, a number or a truth, as it is to stand in the command.
    Literal(Box<str>),
    Data {
        kind: DataKind,
        mode: InputMode,
        /// As the user wrote it.
        uri: Box<str>,
        source: Source,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutput {
    pub kind: DataKind,
    pub mode: OutputMode,
    /// As the user wrote it; `None` is a folder of the job's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<Box<str>>,
    pub to: DataLocation,
    /// The asset that it becomes when the job has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<Box<Registration>>,
}

/// The data asset or the model that an output is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub name: Box<str>,
    /// `None` is the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Box<str>>,
}

/// How many processes a job has on each of its nodes, and how they find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    PyTorch { processes: u32 },
    Mpi { processes: u32 },
    TensorFlow { workers: u32, parameter_servers: u32 },
}
