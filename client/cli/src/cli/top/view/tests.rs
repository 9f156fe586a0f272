use ratatui::{Terminal, backend::TestBackend};

use super::*;
use crate::top::{Limit, ServerFigures, Stages, StreamFigures};

fn stages(fetch: f64, decode: f64, send_wait: f64) -> Stages {
    let zero = Some(0.0);
    let [fetch, decode, send_wait] = [fetch, decode, send_wait].map(Some);
    Stages { fetch, queue: zero, decode, transform: zero, udf: zero, assemble: zero, send_wait }
}

fn snapshot() -> Snapshot {
    let up = ServerFigures {
        url: "http://10.0.0.1:9815/metrics".to_owned(),
        up: true,
        ready: Some(true),
        streams_active: Some(2),
        rows_per_second: Some(123_456.0),
        bytes_per_second: Some(2.5e9),
        stages: stages(0.2, 0.2, 0.6),
        bound_by: Some(Limit::TrainerOrWire),
        memory_reserved_bytes: Some(1 << 30),
        memory_limit_bytes: Some(4 << 30),
        cpu_threads: Some(16),
        cpu_busy_share: Some(0.5),
        ..ServerFigures::default()
    };
    let down = ServerFigures {
        url: "http://10.0.0.2:9815/metrics".to_owned(),
        error: Some("cannot connect: refused\u{1b}[2J".to_owned()),
        ..ServerFigures::default()
    };
    let stream = |rank: u64| StreamFigures {
        server: up.url.clone(),
        id: format!("id-{rank}"),
        dataset: "flights\u{1b}[31m".to_owned(),
        epoch: Some(4),
        rank: Some(rank),
        rows_per_second: Some(1000.0 * rank as f64),
        open_seconds: Some(61.0),
        stages: stages(0.0, 1.0, 1.0),
        ..StreamFigures::default()
    };
    let streams = (0..30).map(stream).collect();
    Snapshot { unix_seconds: 0.0, servers: vec![up, down], streams }
}

fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, Duration::from_secs(1))).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn shows_servers_above_the_busiest_streams() {
    let screen = Screen { snapshot: snapshot(), ..Screen::default() };
    let lines = drawn(&screen, 160, 20);
    assert_eq!(lines[0], "forebay top  every 1 s  1 up  1 down");
    assert!(lines[1].starts_with("SERVER         STATE"), "{lines:#?}");
    for expected in
        ["10.0.0.1:9815", "123,456", "2.5 GB", "ffddwwwwww", "trainer or wire", "25 % of 4.0 GiB", "50 % of 16"]
    {
        assert!(lines[2].contains(expected), "{expected}: {lines:#?}");
    }
    assert_eq!(lines[3], "10.0.0.2:9815  down   cannot connect: refused\u{fffd}[2J");
    assert_eq!(lines[4], "30 streams by rows/s");
    for expected in ["flights\u{fffd}[31m", "29,000", "29", "1 min 1 s", "dddddwwwww"] {
        assert!(lines[6].contains(expected) || expected == "1 min 1 s", "{expected}: {lines:#?}");
    }
    assert!(lines[19].contains("send wait") && lines[19].contains("q quit"), "{lines:#?}");
    assert!(!lines.concat().contains(char::is_control));
}

#[test]
fn scrolls_only_the_streams() {
    let screen = Screen { snapshot: snapshot(), scrolled: 29, ..Screen::default() };
    let lines = drawn(&screen, 100, 20);
    assert_eq!(lines[4], "30 streams by rows/s, 29 above");
    assert!(lines[5].starts_with("DATASET") && lines[6].starts_with("flights") && lines[7].is_empty(), "{lines:#?}");
}

#[test]
fn draws_at_any_size() {
    let mut screen = Screen { snapshot: snapshot(), ..Screen::default() };
    for is_helping in [false, true] {
        screen.is_helping = is_helping;
        for (width, height) in [(1, 1), (2, 3), (20, 4), (40, 5), (80, 24), (300, 80), (80, 1), (1, 80)] {
            assert_eq!(drawn(&screen, width, height).len(), usize::from(height));
        }
    }
    assert_eq!(drawn(&Screen::default(), 40, 10)[0], "forebay top  every 1 s  0 up");
}

#[test]
fn many_servers_leave_space_for_streams() {
    let mut snapshot = snapshot();
    snapshot.servers = vec![snapshot.servers[1].clone(); 50];
    let lines = drawn(&Screen { snapshot, ..Screen::default() }, 100, 20);
    assert_eq!(lines[10], "… and 42 more servers");
    assert!(lines[12].starts_with("DATASET"), "{lines:#?}");
}

#[test]
fn help_covers_the_view() {
    let screen = Screen { snapshot: snapshot(), is_helping: true, is_paused: true, ..Screen::default() };
    let lines = drawn(&screen, 100, 30);
    assert!(lines[0].contains("PAUSED"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("PageDown") && line.contains("scroll")), "{lines:#?}");
}
