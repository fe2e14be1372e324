//! The named inputs and outputs of a job: `${{inputs.x}}` and `${{outputs.y}}` in its command.

use serde::{Deserialize, Serialize};

use super::AssetKind;

/// A place in a blob container on this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataLocation {
    pub container: Box<str>,
    /// The name of a blob, or the common prefix of several, without a trailing slash.
    pub path: Box<str>,
}

/// A version of code that a client has uploaded to the blob storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeAsset {
    /// The ID as the user wrote it.
    pub id: Box<str>,
    pub at: DataLocation,
}

/// The kind of an input or output.
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
    /// Tables and models count as folders.
    pub fn is_file(self) -> bool {
        self == DataKind::UriFile
    }

    /// The kind of asset that holds it under a name and a version.
    pub fn asset(self) -> AssetKind {
        match self {
            DataKind::UriFile | DataKind::UriFolder | DataKind::MlTable => AssetKind::Data,
            DataKind::CustomModel | DataKind::MlflowModel | DataKind::TritonModel => {
                AssetKind::Model
            }
        }
    }
}

/// How an input is provided to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputMode {
    /// A readable path. Muster treats both modes alike: the files are on the node before the job starts.
    ReadOnlyMount,
    Download,
    /// The address itself, for programs that read the data themselves.
    Direct,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputMode {
    /// Muster treats both modes alike: the content of the folder is saved when the job has completed.
    ReadWriteMount,
    Upload,
    Direct,
}

/// Where the bytes of an input are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    Blobs(DataLocation),
    /// Elsewhere, at the input's own address. The node fetches it, never the server.
    Url,
    /// The same, if the input's own address is the name of an asset or is not a web address.
    Web(WebSource),
}

/// What a node downloads, without any credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSource {
    /// An `https` or `http` address.
    pub url: Box<str>,
    /// Whether it means all blobs below the address, which the account must list publicly, as opposed to one file.
    pub is_folder: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobInput {
    /// A string, a number or a boolean, as it is inserted into the command.
    Literal(Box<str>),
    Data {
        kind: DataKind,
        mode: InputMode,
        /// The address as the user wrote it.
        uri: Box<str>,
        source: Source,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutput {
    pub kind: DataKind,
    pub mode: OutputMode,
    /// The address as the user wrote it. `None` is a folder of the job's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<Box<str>>,
    pub to: DataLocation,
    /// The asset to create from it when the job has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<Box<Registration>>,
}

/// The data asset or model to create from an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub name: Box<str>,
    /// `None` is the next version.
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
