//! Files that people provide.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use muster_core::ErrorChain;
use muster_core::catalogue::{Catalogue, VmSize};
use muster_server::pki::{Own, OwnError, OwnFiles};
use muster_server::prices;
use muster_sim::replay::Trace;
use muster_trees::{Run, Tree, Unpacking};
use tempfile::TempDir;

use crate::oracle;

pub fn trace(data: &[u8]) {
    let trace = match Trace::parse(data) {
        Ok(trace) => trace,
        Err(why) => return oracle::words(&why.to_string()),
    };
    let mut again = String::from("submit_s,duration_s,nodes,user\n");
    for job in trace.jobs() {
        let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        let user = trace.users()[job.user as usize].replace('"', "\"\"");
        let (submit, duration) = (seconds(job.submit.0), seconds(job.duration.0));
        writeln!(again, "{submit},{duration},{},\"{user}\"", job.nodes).expect("a text");
    }
    let read = Trace::parse(again.as_bytes()).expect("our own trace");
    assert_eq!(read.users(), trace.users());
    for (read, job) in read.jobs().iter().zip(trace.jobs()) {
        let facts =
            |job: &muster_sim::replay::TraceJob| (job.submit, job.duration, job.nodes, job.user);
        assert_eq!(facts(read), facts(job));
    }
    assert_eq!(read.jobs().len(), trace.jobs().len());
}

/// A list of all valid prices, read again, gives the same prices.
pub fn prices(data: &[u8]) {
    let path = Path::new("/etc/muster/prices.json");
    let catalogue = match prices::parse(data, path) {
        Ok(catalogue) => catalogue,
        Err(why) => return oracle::words(&ErrorChain(&why).to_string()),
    };
    let dollars = |micro: u64| format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    let entry = |size: &VmSize| {
        serde_json::json!({
            "size": size.name,
            "usd_per_hour": dollars(size.price.dedicated_micro_usd_per_hour),
            "low_priority_usd_per_hour": dollars(size.price.low_priority_micro_usd_per_hour),
        })
    };
    let list: Vec<_> = catalogue.iter().map(entry).collect();
    let text = serde_json::Value::from(list).to_string();
    let again = prices::parse(text.as_bytes(), path).expect("our own prices");
    let amounts = |catalogue: &Catalogue| -> Vec<_> {
        let of = |size: &VmSize| {
            let price = &size.price;
            (price.dedicated_micro_usd_per_hour, price.low_priority_micro_usd_per_hour)
        };
        catalogue.iter().map(of).collect()
    };
    assert_eq!(amounts(&again), amounts(&catalogue));
}

/// The places of a certificate and its key, and a valid pair in them.
struct CertificateFolder {
    folder: TempDir,
    certificate: Vec<u8>,
    key: String,
}

thread_local! {
    static PLACE: OnceCell<CertificateFolder> = const { OnceCell::new() };
}

const HOST: &str = "muster.example.com";

impl CertificateFolder {
    /// Always the same pair: the key is not a secret, and its signatures are deterministic.
    fn new() -> CertificateFolder {
        const ED25519: [u8; 16] =
            *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        let key = [&ED25519[..], &[7; 32]].concat();
        let key = rcgen::KeyPair::try_from(&key[..]).expect("a key");
        let mut about = rcgen::CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
        about.serial_number = Some(7.into());
        let certificate = about.self_signed(&key).expect("a certificate");
        CertificateFolder {
            folder: tempfile::tempdir().expect("a temporary folder"),
            certificate: certificate.der().to_vec(),
            key: key.serialize_pem(),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("the folder is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        path
    }

    fn read(&self, certificate: &[u8]) -> Result<Own, OwnError> {
        let files = OwnFiles {
            cert: self.write("cert.pem", certificate),
            key: self.write("key.pem", self.key.as_bytes()),
            host: HOST.to_owned(),
        };
        files.read(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))
    }
}

/// Uses the bytes as the operator's file, and as changes to a valid certificate: a position of two bytes, and the byte
/// to put there.
pub fn certificate(data: &[u8]) {
    PLACE.with(|place| {
        let place = place.get_or_init(CertificateFolder::new);
        if let Err(why) = place.read(data) {
            assert!(!why.to_string().is_empty());
        }
        let mut changed = place.certificate.clone();
        for change in data.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % changed.len();
            changed[at] = change[2];
        }
        let read = place.read(pem(&changed).as_bytes());
        assert!(
            changed != place.certificate || read.is_ok(),
            "the valid certificate is accepted: {read:?}"
        );
    });
}

fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for three in der.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]);
            text.push(if place <= three.len() { digit } else { '=' });
        }
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

/// A tree has one text, and nothing in it leads out of the folder that it is written to.
pub fn tree(data: &[u8]) {
    match Tree::parse(data) {
        Ok(tree) => {
            assert_eq!(tree.to_text().as_bytes(), data, "one text for one tree");
            assert_eq!(Tree::new(tree.files().to_vec()).as_ref(), Ok(&tree));
            for file in tree.files() {
                let parts = Path::new(&*file.path).components();
                let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
                assert!(parts.clone().all(is_plain) && parts.count() > 0, "{:?}", file.path);
            }
        }
        Err(refusal) => oracle::words(&refusal.to_string()),
    }
}

/// A packed file is the same in whatever pieces it arrives, and nothing that arrived is lost.
pub fn packed_file(data: &[u8]) {
    let unpacked = |step: usize| {
        let (mut unpacking, mut all) = (Unpacking::default(), Vec::new());
        for mut come in data.chunks(step) {
            while let Some(run) = unpacking.next(&mut come) {
                match (run, all.last_mut()) {
                    (Run::Data(bytes), Some(Part::Data(before))) => before.extend_from_slice(bytes),
                    (Run::Data(bytes), _) => all.push(Part::Data(bytes.to_vec())),
                    (Run::Hole(bytes), _) => all.push(Part::Hole(bytes)),
                }
            }
            assert!(come.is_empty());
        }
        (all, unpacking.is_whole())
    };
    let whole = unpacked(data.len().max(1));
    assert_eq!(whole, unpacked(1));
    assert_eq!(whole, unpacked(5));
    let kept = whole.0.iter().map(|part| if let Part::Data(data) = part { data.len() } else { 0 });
    assert!(kept.sum::<usize>() <= data.len());
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Data(Vec<u8>),
    Hole(u64),
}
