//! Authentication, grants and limits.

use std::{fs, net::IpAddr, thread, time::Duration};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;

use super::{admission::StreamLimits, principals::Principals, *};

/// The SHA-256 of "open sesame".
const SESAME: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

fn auth(text: &str) -> (Auth, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("principals.toml");
    fs::write(&path, text).unwrap();
    let key = TicketKey::new(&[7; 32], Duration::from_mins(1));
    (Auth::new(Some(PrincipalsFile::open(&path).unwrap()), false, key), folder)
}

fn trainer(more: &str) -> String {
    format!("[trainer]\ntoken_sha256 = \"{SESAME}\"\ndatasets = [\"flights\", \"click?-*\"]\n{more}\n")
}

fn certificate(name: &str) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap().into()
}

#[test]
fn a_token_identifies_the_caller_and_its_datasets() {
    let (auth, _folder) = auth(&trainer(""));
    assert!(auth.is_on());
    let peer = Peer::default();
    for authorization in [&b"Bearer open sesame"[..], b"bearer  open sesame ", b"BEARER open sesame"] {
        let caller = auth.caller(Some(authorization), &peer).unwrap();
        assert_eq!(&**caller.name(), "trainer");
        let may = ["flights", "clicks-2026", "click-", "flights2", "Flights"].map(|name| caller.may_read(name));
        assert_eq!(may, [true, true, false, false, false]);
        assert!(!caller.reads_everything());
    }
    let refused = |authorization: Option<&[u8]>| auth.caller(authorization, &peer).unwrap_err();
    assert!(matches!(refused(None), AccessError::Anonymous { with_certificates: false }));
    assert!(matches!(refused(Some(b"Bearer open sesame!")), AccessError::UnknownToken));
    for odd in [
        &b"open sesame"[..],
        b"Bearer",
        b"Bearer ",
        b"Basic b3BlbiBzZXNhbWU=",
        b"",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert!(matches!(refused(Some(odd)), AccessError::Scheme), "{odd:?}");
    }
}

#[test]
fn a_certificate_identifies_the_caller_by_its_names() {
    let text = trainer("certificate = [\"10.0.0.1\", \"trainer.example\"]");
    let (auth, _folder) = auth(&text);
    let by = |certificate: CertificateDer<'static>| {
        let peer = Peer { certificate: Some(certificate), address: None };
        auth.caller(None, &peer).map(|caller| caller.name().to_string())
    };
    assert_eq!(by(certificate("trainer.example")).unwrap(), "trainer");
    assert!(matches!(by(certificate("other.example")), Err(AccessError::UnknownCertificate)));
    assert!(matches!(by(vec![1, 2, 3].into()), Err(AccessError::UnknownCertificate)));
}

#[test]
fn without_a_file_any_verified_certificate_is_accepted() {
    let auth = Auth::new(None, true, TicketKey::throwaway());
    assert!(auth.is_on());
    assert!(matches!(auth.caller(None, &Peer::default()), Err(AccessError::Anonymous { .. })));
    let peer = Peer { certificate: Some(certificate("a")), address: None };
    let caller = auth.caller(Some(b"Bearer other"), &peer).unwrap();
    assert!(caller.name().starts_with("certificate-") && caller.reads_everything());
    let off = Auth::off();
    let from = |text: &str| Peer { address: Some((text.parse::<IpAddr>().unwrap(), 1).into()), certificate: None };
    let name = |peer: &Peer| off.caller(None, peer).unwrap().name().to_string();
    assert!(!off.is_on());
    assert_eq!([name(&from("::ffff:127.0.0.1")), name(&Peer::default())], ["127.0.0.1", "unix"]);
}

#[test]
fn errors_in_a_file_name_the_place_and_quote_no_digest() {
    let twice = format!("{}[other]\ntoken_sha256 = [\"{SESAME}\"]\ndatasets = \"*\"\n", trainer(""));
    for (text, words) in [
        ("", "no principal"),
        ("[a]\ndatasets = \"*\"\n", "at least one is required"),
        (&format!("[a]\ntoken_sha256 = \"{SESAME}\"\n"), "datasets"),
        (&format!("[a]\ntoken_sha256 = \"{SESAME}\"\ndatasets = []\n"), "at least one name"),
        (&format!("[a]\ntoken_sha256 = \"{SESAME}\"\ndatasets = \"[\"\n"), "datasets"),
        ("[a]\ntoken_sha256 = \"open sesame\"\ndatasets = \"*\"\n", "64 hexadecimal digits"),
        ("[\"a b\"]\ntoken_sha256 = \"open sesame\"\ndatasets = \"*\"\n", "the name must be"),
        ("[a]\ncertificate = \"-\"\ndatasets = \"*\"\n", "not a DNS name"),
        (&trainer("calls_per_second = -1"), "above 0"),
        (&trainer("calls_per_second = nan"), "above 0"),
        (&trainer("streams = 5"), "streams"),
        (&trainer("streams_max = -5"), "line"),
        (&twice, "another entry"),
    ] {
        let reason = Principals::parse(text).unwrap_err();
        assert!(reason.contains(words), "{text}: {reason}");
        assert!(!reason.contains(&SESAME[..16]) && !reason.contains("open sesame"), "{reason}");
    }
}

#[test]
fn the_file_is_reloaded_and_the_last_good_content_is_kept() {
    let (auth, folder) = auth(&trainer(""));
    let path = folder.path().join("principals.toml");
    let known = || auth.caller(Some(b"Bearer open sesame"), &Peer::default()).is_ok();
    assert!(known());
    // Files are checked once a second.
    let wait = || thread::sleep(Duration::from_millis(1100));
    fs::write(&path, "not TOML at all").unwrap();
    wait();
    assert!(known());
    fs::write(&path, trainer("").replace(&SESAME[..2], "00")).unwrap();
    wait();
    assert!(!known());
}

#[test]
fn streams_and_calls_are_limited_with_a_time_to_retry() {
    let (auth, _folder) = auth(&format!(
        "{}[other]\ntoken_sha256 = \"{}\"\ndatasets = \"*\"\n",
        trainer("streams_max = 1\ncalls_per_second = 2"),
        "0".repeat(64)
    ));
    let call = || auth.caller(Some(b"Bearer open sesame"), &Peer::default());
    let caller = call().unwrap();
    call().unwrap();
    let refused = call().unwrap_err();
    assert!(matches!(refused, AccessError::Rate { retry_ms: 1..=500, .. }), "{refused:?}");

    let admission = Admission::new(StreamLimits { per_client: 2, total: 3 });
    let permit = admission.stream(&caller).unwrap();
    let words = admission.stream(&caller).unwrap_err().to_string();
    assert!(words.contains("of trainer") && words.contains("streams_max"), "{words}");
    let anyone = Caller::anyone();
    let permits = [admission.stream(&anyone).unwrap(), admission.stream(&anyone).unwrap()];
    let words = admission.stream(&anyone).unwrap_err().to_string();
    assert!(words.contains("--streams-per-client"), "{words}");
    let unix_client = Auth::off().caller(None, &Peer::default()).unwrap();
    let words = admission.stream(&unix_client).unwrap_err().to_string();
    assert!(words.contains("--streams-max"), "{words}");
    drop((permit, permits));
    admission.stream(&caller).unwrap();
}

#[test]
fn a_ticket_is_bound_to_its_caller_content_and_lifetime() {
    let key = TicketKey::new(&[7; 32], Duration::from_mins(1));
    let (signed, _) = key.sign(b"FBT1 anything", "trainer");
    assert_eq!(key.open(&signed, "trainer").unwrap(), b"FBT1 anything");
    assert_eq!(key.open(&signed, "trainer2"), Err(TicketFault::Another));
    assert_eq!(TicketKey::new(&[8; 32], Duration::from_mins(1)).open(&signed, "trainer"), Err(TicketFault::Foreign));
    for index in 0..signed.len() {
        let mut changed = signed.clone();
        changed[index] ^= 1;
        assert_eq!(key.open(&changed, "trainer"), Err(TicketFault::Foreign), "byte {index}");
        assert_eq!(key.open(&signed[..index], "trainer"), Err(TicketFault::Foreign), "cut at {index}");
    }
    assert_eq!(key.open(b"FBT1 anything", "trainer"), Err(TicketFault::Foreign));
    let short = TicketKey::new(&[7; 32], Duration::ZERO);
    let (old, _) = short.sign(b"x", "a");
    thread::sleep(Duration::from_millis(2100));
    assert!(matches!(short.open(&old, "a"), Err(TicketFault::Expired { seconds: 1.. })));
}

#[test]
fn debug_output_shows_no_secret() {
    let (auth, _folder) = auth(&trainer(""));
    let key = TicketKey::new(b"a secret of more than 32 bytes, in letters", Duration::from_mins(1));
    let caller = auth.caller(Some(b"Bearer open sesame"), &Peer::default()).unwrap();
    let shown = format!("{auth:?} {key:?} {caller:?} {:?}", AccessError::UnknownToken);
    assert!(!shown.contains("secret of") && !shown.contains("sesame") && !shown.contains(&SESAME[..8]), "{shown}");
}
