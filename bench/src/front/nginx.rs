//! The peer for comparison: nginx, which serves the same bytes from files over the same TLS.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load::Target;

pub struct Nginx {
    process: Child,
    pub target: Target,
}

impl Nginx {
    /// `None` if nginx is not installed.
    pub fn start(
        folder: &Path,
        pki: &Path,
        like: &Target,
        files: &[Vec<u8>],
    ) -> Result<Option<Nginx>> {
        if !is_there() {
            return Ok(None);
        }
        Nginx::with(folder, pki, like, files, "").map(Some)
    }

    /// A server that also accepts files, as WebDAV does. It does not wait until they are on disk.
    pub fn for_uploads(folder: &Path, pki: &Path, like: &Target) -> Result<Option<Nginx>> {
        let takes = "dav_methods PUT; client_max_body_size 0; client_body_buffer_size 1m; output_buffers 2 512k;";
        match is_there() {
            true => Nginx::with(folder, pki, like, &[b"up".to_vec()], takes).map(Some),
            false => Ok(None),
        }
    }

    fn with(
        folder: &Path,
        pki: &Path,
        like: &Target,
        files: &[Vec<u8>],
        more: &str,
    ) -> Result<Nginx> {
        fs::create_dir_all(folder.join("files"))?;
        for (number, bytes) in files.iter().enumerate() {
            fs::write(folder.join("files").join(number.to_string()), bytes)?;
        }
        // The system returns a port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = folder.join("nginx.conf");
        fs::write(&config, configuration(folder, pki, port, more))?;
        let process = Command::new("nginx")
            .arg("-c")
            .arg(&config)
            .arg("-p")
            .arg(folder)
            .args(["-e", "stderr"])
            .stderr(Stdio::null())
            .spawn()
            .context("nginx could not be started")?;
        let target = Target { port, header: String::new(), ..like.clone() };
        let mut nginx = Nginx { process, target };
        nginx.wait_until_up()?;
        Ok(nginx)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            if let Ok(mut caller) = self.target.connect()
                && caller.get("/0").is_ok()
            {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("nginx ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("nginx did not become ready")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it when it is asked to end, but not when it is killed.
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

fn is_there() -> bool {
    let said = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
    said.is_ok_and(|status| status.success())
}

fn configuration(folder: &Path, pki: &Path, port: u16, more: &str) -> String {
    let (folder, pki) = (folder.display(), pki.display());
    // The files are readable only for the user who runs this.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "daemon off; worker_processes auto; {user} pid {folder}/pid;
events {{ }}
http {{
    access_log off; default_type application/json; keepalive_requests 10000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    open_file_cache max=100; tcp_nodelay on;
    server {{
        listen 127.0.0.1:{port} ssl; root {folder}/files;
        ssl_certificate {pki}/server.pem; ssl_certificate_key {pki}/server.key;
        ssl_protocols TLSv1.3; {more}
    }}
}}
"
    )
}
