use super::*;

const NOW_US: u64 = 1_795_031_110_033_009;

/// Returns the size.
#[track_caller]
fn check(text: &str) -> usize {
    let packed = pack(text, NOW_US);
    assert_eq!(unpack(&packed, NOW_US).as_deref(), Some(text));
    packed.len()
}

#[test]
fn records_shrink_to_a_fifth() {
    let job = r#"{"JobChanged":{"event":"Granted","job":{"id":1882226499105325424,
        "workspace":1882226499105325057,"cluster":1882226499105325058,"name":"job-3-46",
        "principal":1882226499105325056,"nodes":1,"share":{"gpus":0,"vcpus":1,"memory_mb":3584},
        "priority":"Medium",
        "spec":"1040b2058711b41e229c56ea2d63fdd8d9b3af1afa142df04a309f2f91a59132",
        "submitted_at":1795031110033009,"attempts":1,"losses":0,"state":{"Starting":{
        "epoch":1882226499105325425,"number":1,"granted_at":1795031110033009,"started_at":null,
        "go":true,"members":[{"node":1882226499105325060,"price_micro_usd_per_hour":290000,
        "part":250000,"phase":"Ordered","meter":{"category":"Prepare","since":1795031110033009,
        "part":250000},"spent":[]}],"verdict":null,"predicted":18314,
        "charged":{"exponent":20851,"mantissa":18237355017903917177}}}}}}"#;
    let job: String = job.split("\n        ").collect();
    let size = check(&job);
    assert!(size * 5 <= job.len(), "{size} of {} bytes", job.len());
}

/// Counting all of them at every byte would take hours.
#[test]
fn a_long_row_of_digits_is_no_more_work_than_other_text() {
    for digit in ["0", "1", "9"] {
        check(&digit.repeat(1 << 20));
    }
}

#[test]
fn any_text_comes_back() {
    for text in [
        "",
        "0",
        "007",
        "x",
        "é\u{1f600}\0\u{7f}",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999999999999999",
        "000000000000000000000000000000",
        "1795031110033009,1795031110033008,1795031110033010,0,9223372036854775808",
        "0123456789abcdef0123456789abcdef0",
        "0123456789ABCDEF0123456789ABCDEF",
        "be99ab60-c057-8761-86cf-e7d7822fe9bf",
        "be99ab60-c057-8761-86cf-e7d7822fe9b",
        "be99ab60-c057-8761-86cf-e7d7822fe9bfé",
        "abe99ab60-c057-8761-86cf-e7d7822fe9bf-",
        r#"{"AccountChanged":{"cluster":"#,
        r#""vcpus":12,"vcpus":1"#,
    ] {
        check(text);
    }
    check(&"f".repeat(1_001));
    check(&"é".repeat(1_001));
    check(&phrases::first_text().repeat(2));
}

/// Pieces of every kind in any order, also cut in their middle.
#[test]
fn random_texts_come_back() {
    let pieces = [
        r#"{"JobChanged":{"event":"Granted","job":{"id":"#,
        r#","workspace":0,"cluster":"#,
        "1882226499105325424",
        "1882226499105325425",
        "17950",
        "be99ab60-c057-8761-86cf-e7d7822fe9bf",
        "1040b2058711b41e229c56ea2d63fdd8",
        "\"ünï\"",
        "-",
        "a",
        "0",
    ];
    let mut random = 1u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..draw(12) {
            let piece = pieces[draw(pieces.len())];
            let end = piece.floor_char_boundary(draw(piece.len() + 1));
            text += if draw(3) == 0 { &piece[..end] } else { piece };
        }
        check(&text);
    }
}

/// Damage is reported, or changes the text, but does no harm.
#[test]
fn damaged_bytes_are_refused_or_read_as_another_text() {
    let packed = pack(&phrases::first_text()[..3_000], NOW_US);
    assert_eq!(unpack(&[], NOW_US), None);
    assert_eq!(unpack(&[VERSION + 1], NOW_US), None);
    assert_eq!(unpack(&[VERSION, UUID + 1], NOW_US), None, "no such instruction");
    assert_eq!(unpack(&[VERSION, NEXT_PHRASE | 1], NOW_US), None, "it follows no phrase");
    for at in 1..packed.len() {
        let _ = unpack(&packed[..at], NOW_US);
        for bit in 0..8 {
            let mut damaged = packed.clone();
            damaged[at] ^= 1 << bit;
            let _ = unpack(&damaged, NOW_US);
        }
    }
}

/// Regression guard: with another list, texts of existing stores could not be read.
#[test]
fn the_first_list_never_changes() {
    let sum = phrases::first_text().bytes().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!(
        sum, 9_008_376_859_454_031_783,
        "released lists of phrases must not change; add another one"
    );
}
