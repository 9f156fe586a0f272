//! TLS, client certificates and bearer tokens against a real server: granted access, and errors for denied clients.

use std::{fmt::Write, fs, path::Path, sync::Arc};

use forebay_client::{Client, Credentials, Error, Mismatch, Replicas, Retry, StreamRequest, plan_from_json};
use futures::TryStreamExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tonic::Code;

use crate::{data, server::Server};

const TOKEN: &str = "a token of the tests, which is no secret";

/// Writes PEM files of an authority, and of certificates it issued to a server and two clients.
fn write_certificates(folder: &Path) {
    let authority = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&authority).unwrap();
    fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
    let issuer = Issuer::new(params, authority);
    for (name, subject) in [("server", "127.0.0.1"), ("client", "trainer.example"), ("unknown", "other.example")] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([subject.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn folder() -> Arc<TempDir> {
    let folder = TempDir::new().unwrap();
    data::write(&folder.path().join("numbers"));
    data::write(&folder.path().join("secret"));
    write_certificates(folder.path());
    let digest = Sha256::digest(TOKEN).iter().fold(String::new(), |mut digest, byte| {
        write!(digest, "{byte:02x}").unwrap();
        digest
    });
    let principals = format!(
        "[trainer]\ntoken_sha256 = \"{digest}\"\ncertificate = \"trainer.example\"\ndatasets = [\"numbers\"]\n"
    );
    fs::write(folder.path().join("principals.toml"), principals).unwrap();
    Arc::new(folder)
}

fn start(folder: &Arc<TempDir>, flags: &[&str]) -> Server {
    let tls = ["--listen", "127.0.0.1:0", "--state", "state", "--tls-cert", "server.pem", "--tls-key", "server.key"];
    Server::over(Arc::clone(folder), &["numbers", "secret"], &[&tls, flags].concat())
}

fn request(dataset: &str) -> StreamRequest {
    let plan = plan_from_json(
        br#"{"outputs": [{"name": "x", "parts": [{"columns": ["delay"], "ops": [{"fill_null": {"value": 0}}]}]}]}"#,
    );
    StreamRequest { dataset: dataset.into(), plan: Some(plan.unwrap()), batch_size: Some(64), ..Default::default() }
}

fn code(error: &Error) -> Code {
    match error {
        Error::Status(status) => status.code(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_grants_access_to_its_datasets_only() {
    let folder = folder();
    let server = start(&folder, &["--principals", "principals.toml"]);
    assert!(server.url.starts_with("grpc+tls://"), "{}", server.url);
    let known = Credentials::default().with_ca(fs::read(folder.path().join("ca.pem")).unwrap());
    let trainer = known.clone().with_token(TOKEN).unwrap();

    let client = Client::connect_with(&server.url, &trainer).await.unwrap();
    let names: Vec<String> = client.list().await.unwrap().into_iter().map(|table| table.info.name).collect();
    assert_eq!(names, ["numbers"]);
    let epoch = client.stream_info(&request("numbers")).await.unwrap();
    let batches: Vec<_> = client.read(&epoch.endpoints[0]).await.unwrap().try_collect().await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.header.rows).sum::<u64>(), epoch.info.rows);
    let mut through_replicas =
        Replicas::new([&server.url]).unwrap().with_credentials(trainer).open(&request("numbers"), 0).await.unwrap();
    assert_eq!(through_replicas.try_next().await.unwrap().unwrap().data, batches[0].data);
    assert_eq!(code(&client.stream_info(&request("secret")).await.unwrap_err()), Code::PermissionDenied);
    assert_eq!(code(&client.table_info("nowhere").await.unwrap_err()), Code::PermissionDenied);

    let anonymous = Client::connect_with(&server.url, &known).await.unwrap();
    assert_eq!(code(&anonymous.list().await.unwrap_err()), Code::Unauthenticated);
    let wrong = known.clone().with_token("another").unwrap();
    let wrong = Client::connect_with(&server.url, &wrong).await.unwrap();
    assert_eq!(code(&wrong.list().await.unwrap_err()), Code::Unauthenticated);
}

fn mismatch(error: Error) -> Mismatch {
    match error {
        Error::Handshake { mismatch, .. } => mismatch,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_failed_handshake_says_what_to_change() {
    let folder = folder();
    let server = start(&folder, &["--principals", "principals.toml"]);
    let known = Credentials::default().with_ca(fs::read(folder.path().join("ca.pem")).unwrap());
    let plain_url = |url: &str| url.replace("grpc+tls", "grpc");
    let refused = async |url: &str, credentials: &Credentials| match Client::connect_with(url, credentials).await {
        Err(error) => mismatch(error),
        // TLS 1.3 rejects a client after its handshake.
        Ok(client) => mismatch(client.list().await.unwrap_err()),
    };
    assert_eq!(refused(&server.url, &Credentials::default()).await, Mismatch::Authority);
    let plain = plain_url(&server.url);
    assert_eq!(refused(&plain, &known).await, Mismatch::TlsPort(server.url.clone()));
    assert_eq!(refused(&plain, &Credentials::default()).await, Mismatch::TlsPort(server.url.clone()));
    let by_name = server.url.replace("127.0.0.1", "localhost");
    let other_name = Mismatch::Name { host: "localhost".to_owned(), names: "127.0.0.1".to_owned() };
    assert_eq!(refused(&by_name, &known).await, other_name);
    let mutual = start(&folder, &["--tls-client-ca", "ca.pem"]);
    assert_eq!(refused(&plain_url(&mutual.url), &known).await, Mismatch::TlsPort(mutual.url.clone()));
    let unsecured = Server::over(Arc::clone(&folder), &["numbers"], &["--listen", "127.0.0.1:0"]);
    let tls_url = unsecured.url.replace("grpc", "grpc+tls");
    assert_eq!(refused(&tls_url, &known).await, Mismatch::PlainPort(unsecured.url.clone()));

    let replicas = Replicas::new(["grpc://127.0.0.1:1", &plain]).unwrap().with_credentials(known);
    let retry = Retry { passes_max: 1, ..Retry::default() };
    let error = replicas.with_retry(retry).open(&request("numbers"), 0).await.err().unwrap().to_string();
    let expected =
        format!("grpc://127.0.0.1:1: Connection refused (os error 111); {plain}: this port speaks TLS: use ");
    assert!(error.contains(&expected), "{error}");
}

#[tokio::test]
async fn a_client_certificate_replaces_a_token() {
    let folder = folder();
    let server = start(&folder, &["--tls-client-ca", "ca.pem", "--principals", "principals.toml"]);
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let known = Credentials::default().with_ca(read("ca.pem"));
    let of = |name: &str| known.clone().with_certificate(read(&format!("{name}.pem")), read(&format!("{name}.key")));
    let client = Client::connect_with(&server.url, &of("client")).await.unwrap();
    assert_eq!(client.table_info("numbers").await.unwrap().info.name, "numbers");
    let unknown = Client::connect_with(&server.url, &of("unknown")).await.unwrap();
    assert_eq!(code(&unknown.list().await.unwrap_err()), Code::Unauthenticated);
    // Without a certificate the connection fails; in TLS 1.3 after the client's handshake.
    let error = match Client::connect_with(&server.url, &known).await {
        Err(error) => error,
        Ok(client) => client.list().await.unwrap_err(),
    };
    assert!(error.to_string().contains("give --cert FILE and --key FILE"), "{error}");
}

#[test]
fn the_command_line_reads_credentials_from_the_environment_and_files() {
    let folder = folder();
    let server = start(&folder, &["--principals", "principals.toml"]);
    fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let by_file = server.forebay(&["--ca", "ca.pem", "--token-file", "token", "ls"]).output().unwrap();
    assert!(by_file.status.success(), "{by_file:?}");
    assert!(String::from_utf8_lossy(&by_file.stdout).contains("numbers"));
    let anonymous = server.forebay(&["--ca", "ca.pem", "ls"]).output().unwrap();
    let words = String::from_utf8_lossy(&anonymous.stderr).into_owned();
    assert!(anonymous.status.code() == Some(1) && words.contains("--token-file FILE or FOREBAY_TOKEN_FILE"), "{words}");
    let environment = server.forebay(&["ls"]).env("FOREBAY_CA", "ca.pem").env("FOREBAY_TOKEN_FILE", "token").output();
    assert!(environment.unwrap().status.success());
    let missing = server.forebay(&["--ca", "nowhere.pem", "ls"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}
