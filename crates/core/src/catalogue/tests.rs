//! Tests of the catalogue as a whole: the compiled-in data, look-up and operator prices.

use std::collections::BTreeSet;

use super::*;

/// The size called `name`, which must exist.
fn size<'a>(catalogue: &'a Catalogue, name: &str) -> &'a VmSize {
    catalogue.get(name).unwrap_or_else(|| panic!("{name} is in the catalogue"))
}

fn amounts(catalogue: &Catalogue, name: &str) -> (u64, u64, PriceSource) {
    let price = size(catalogue, name).price;
    let Price { dedicated_micro_usd_per_hour, low_priority_micro_usd_per_hour, source } = price;
    (dedicated_micro_usd_per_hour, low_priority_micro_usd_per_hour, source)
}

fn operator_price(name: &str, dedicated: u64, low_priority: Option<u64>) -> OperatorPrice {
    OperatorPrice {
        size: name.into(),
        dedicated_micro_usd_per_hour: dedicated,
        low_priority_micro_usd_per_hour: low_priority,
    }
}

fn refusal(prices: &[OperatorPrice]) -> String {
    match Catalogue::builtin().with_prices(prices) {
        Ok(_) => panic!("the list must be refused: {prices:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_sizes_the_source_documents_name_have_their_exact_figures() {
    let catalogue = Catalogue::builtin();
    for (name, vcpus, memory_gb, gpus, gpu_model) in [
        ("Standard_DS3_v2", 4, 14, 0, None),
        ("Standard_DS12_v2", 4, 28, 0, None),
        ("Standard_NC6s_v3", 6, 112, 1, Some("V100")),
        ("Standard_NC24ads_A100_v4", 24, 220, 1, Some("A100")),
    ] {
        let size = size(&catalogue, name);
        assert_eq!(&*size.name, name);
        let figures = (size.vcpus, size.memory_mb, size.gpus, size.gpu_model.as_deref());
        assert_eq!(figures, (vcpus, memory_gb * 1024, gpus, gpu_model), "{name}");
    }
}

#[test]
fn every_row_parses() {
    let sizes = rows::parse(include_str!("sizes.tsv")).expect("the compiled-in data is sound");
    // 1480 current sizes of the fact file, Standard_DS1_v2, and 50 of retired series.
    assert_eq!(sizes.len(), 1531);
    let keys: Vec<String> = sizes.iter().map(|size| key(&size.name)).collect();
    assert!(keys.is_sorted(), "the rows are sorted by lower-cased name");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), sizes.len(), "a name is listed twice");
    assert_eq!(Catalogue::builtin().iter().count(), sizes.len());
    for size in &sizes {
        assert!(size.name.starts_with("Standard_") && size.name.is_ascii(), "{size:?}");
        assert!(size.vcpus > 0 && size.memory_mb > 0 && !size.family.is_empty(), "{size:?}");
        assert!(price::knows_gpu_of(size), "{size:?}");
        let price = size.price;
        assert!(price.dedicated_micro_usd_per_hour > 0, "{size:?}");
        assert!(price.dedicated_micro_usd_per_hour <= PRICE_MAX_MICRO_USD_PER_HOUR, "{size:?}");
        let low_priority = price.low_priority_micro_usd_per_hour;
        assert!(low_priority > 0, "{size:?}");
        assert!(low_priority <= price.dedicated_micro_usd_per_hour, "{size:?}");
    }
}

#[test]
fn a_gpu_model_is_known_exactly_when_there_are_gpus() {
    for size in Catalogue::builtin().iter() {
        assert_eq!(size.gpus > 0, size.gpu_model.is_some(), "{size:?}");
    }
}

#[test]
fn names_are_found_ignoring_case_only() {
    let catalogue = Catalogue::builtin();
    assert_eq!(&*size(&catalogue, "STANDARD_DS3_V2").name, "Standard_DS3_v2");
    assert_eq!(&*size(&catalogue, "standard_ds3_v2").name, "Standard_DS3_v2");
    for absent in ["", "DS3_v2", "Standard_DS3_v2 ", "Standard_DS3v2", "größe"] {
        assert_eq!(catalogue.get(absent), None, "{absent}");
    }
}

#[test]
fn retired_series_are_known_and_refused() {
    let catalogue = Catalogue::builtin();
    for (on, names) in [
        ("2023-08-31", ["NC6", "NC24r", "NC6s_v2", "ND24rs", "NV6", "NV24_Promo"].as_slice()),
        ("2024-08-31", ["A0", "A7", "A8", "A11", "HB60rs", "HB60-15rs"].as_slice()),
        ("2022-08-31", ["H16mr", "H8_Promo"].as_slice()),
    ] {
        for name in names {
            let retirement = &size(&catalogue, &format!("Standard_{name}")).retirement;
            assert_eq!(*retirement, Retirement::Retired { on: on.into() }, "{name}");
            assert!(!retirement.accepts_creation(), "{name}");
        }
    }
}

#[test]
fn ncv3_is_flagged_but_accepted() {
    let catalogue = Catalogue::builtin();
    for name in ["NC6s_v3", "NC12s_v3", "NC24s_v3", "NC24rs_v3"] {
        let retirement = &size(&catalogue, &format!("Standard_{name}")).retirement;
        assert!(matches!(retirement, Retirement::Announced { .. }), "{name}");
        assert!(retirement.accepts_creation(), "{name}");
    }
    let announced = |size: &&VmSize| matches!(size.retirement, Retirement::Announced { .. });
    assert_eq!(catalogue.iter().filter(announced).count(), 4);
    assert_eq!(size(&catalogue, "Standard_DS3_v2").retirement, Retirement::Current);
}

#[test]
fn listed_prices() {
    let catalogue = Catalogue::builtin();
    let check = |name, dedicated, low_priority| {
        let expected = (dedicated, low_priority, PriceSource::Listed);
        assert_eq!(amounts(&catalogue, name), expected, "{name}");
    };
    // Both tiers are listed, the lower one rounded to cents.
    check("Standard_DS3_v2", 290_000, 60_000);
    check("Standard_DS1_v2", 70_000, 10_000);
    // Only the dedicated tier is listed.
    check("Standard_NC6s_v3", 3_060_000, 612_000);
    check("Standard_NC24ads_A100_v4", 3_673_000, 734_600);
    assert_eq!(catalogue.iter().filter(|s| s.price.source == PriceSource::Listed).count(), 25);
}

#[test]
fn a_low_priority_hour_costs_a_fifth() {
    // Where both tiers are listed, the lower one is rounded to cents: a fifth to half a cent.
    let rounding = 5_000;
    for size in Catalogue::builtin().iter() {
        let fifth = size.price.dedicated_micro_usd_per_hour / 5;
        let low_priority = size.price.low_priority_micro_usd_per_hour;
        let allowed = if size.price.source == PriceSource::Listed { rounding } else { 0 };
        assert!(low_priority.abs_diff(fifth) <= allowed, "{size:?}");
    }
}

#[test]
fn estimates_come_close_to_listed_prices() {
    // The constants are fitted to these; the A100 and V100 rates lie between several sizes.
    for (name, percent) in [
        ("Standard_F2s_v2", 1),
        ("Standard_F72s_v2", 1),
        ("Standard_NC6s_v3", 2),
        ("Standard_NC4as_T4_v3", 2),
        ("Standard_ND40rs_v2", 10),
        ("Standard_ND96asr_v4", 10),
        ("Standard_NC24ads_A100_v4", 15),
    ] {
        let catalogue = Catalogue::builtin();
        let size = size(&catalogue, name);
        let model = size.gpu_model.as_deref();
        let estimate = Price::estimate(&size.family, size.vcpus, size.memory_mb, size.gpus, model);
        let listed = size.price.dedicated_micro_usd_per_hour;
        let gap = listed.abs_diff(estimate.dedicated_micro_usd_per_hour);
        assert!(gap * 100 <= listed * percent, "{name}: listed {listed}, estimated {estimate:?}");
    }
}

#[test]
fn a_share_of_a_gpu_is_not_charged_as_a_whole() {
    let catalogue = Catalogue::builtin();
    // 6 vCPUs, 55 GiB and a sixth of an A10.
    let expected = 6 * 34_800 + 55 * 3_750 + 500_000 / 6;
    let sixth = amounts(&catalogue, "Standard_NV6ads_A10_v5");
    assert_eq!(sixth, (expected, expected / 5, PriceSource::Estimated));
    // 72 vCPUs, 880 GiB and two of them.
    let two = amounts(&catalogue, "Standard_NV72ads_A10_v5").0;
    assert_eq!(two, 72 * 34_800 + 880 * 3_750 + 2 * 500_000);
}

/// Within a family, more vCPUs cost more unless memory or GPUs shrink at the same time: the
/// memory-heavy M sizes rightly cost more than wider ones with a third of the memory.
#[test]
fn estimates_grow_with_vcpus_within_a_family() {
    let catalogue = Catalogue::builtin();
    let mut families: BTreeMap<&str, Vec<&VmSize>> = BTreeMap::new();
    for size in catalogue.iter().filter(|size| size.price.source == PriceSource::Estimated) {
        families.entry(&size.family).or_default().push(size);
    }
    let mut compared = 0;
    for sizes in families.values() {
        for (less, more) in sizes.iter().flat_map(|a| sizes.iter().map(move |b| (a, b))) {
            let grows = less.memory_mb <= more.memory_mb && less.gpus <= more.gpus;
            if less.vcpus < more.vcpus && grows {
                let (less_price, more_price) = (less.price, more.price);
                let rises = less_price.dedicated_micro_usd_per_hour
                    < more_price.dedicated_micro_usd_per_hour;
                assert!(rises, "{less:?} {more:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 5_000, "only {compared} pairs were compared");
}

#[test]
fn misspelt_names_get_a_suggestion() {
    let catalogue = Catalogue::builtin();
    for (written, meant) in [
        ("STANDARD_DS3V2", Some("Standard_DS3_v2")),
        ("ds3_v2", Some("Standard_DS3_v2")),
        ("Standrad_DS3_v2", Some("Standard_DS3_v2")),
        ("Standard-DS3-v2", Some("Standard_DS3_v2")),
        ("Standard_NC6sv3", Some("Standard_NC6s_v3")),
        ("Standard_NC24ads_A100", Some("Standard_NC24ads_A100_v4")),
        ("standard_ds12_v2", Some("Standard_DS12_v2")),
        ("", None),
        ("large", None),
        ("m5.2xlarge", None),
        ("Standard_whatever_you_have", None),
    ] {
        assert_eq!(catalogue.nearest(written), meant, "{written}");
    }
}

#[test]
fn a_suggestion_is_never_a_retired_size() {
    let catalogue = Catalogue::builtin();
    for retired in catalogue.iter().filter(|size| !size.retirement.accepts_creation()) {
        if let Some(name) = catalogue.nearest(&retired.name) {
            assert!(size(&catalogue, name).retirement.accepts_creation(), "{retired:?} {name}");
        }
    }
}

#[test]
fn an_operators_list_replaces_the_built_in_one() {
    let list = [
        operator_price("standard_ds3_V2", 100_000, Some(70_000)),
        operator_price("Standard_D4s_v3", 200_004, None),
        operator_price("Standard_NC6", 0, None),
    ];
    let builtin = Catalogue::builtin();
    let catalogue = builtin.clone().with_prices(&list).expect("the list is sound");
    let operator = PriceSource::Operator;
    assert_eq!(amounts(&catalogue, "Standard_DS3_v2"), (100_000, 70_000, operator));
    assert_eq!(amounts(&catalogue, "Standard_D4s_v3"), (200_004, 40_000, operator));
    assert_eq!(amounts(&catalogue, "Standard_NC6"), (0, 0, operator));
    // A size that the list does not name is no longer listed, but is not free either.
    let estimated = PriceSource::Estimated;
    assert_eq!(amounts(&catalogue, "Standard_DS4_v2"), (580_000, 120_000, estimated));
    assert_eq!(catalogue.iter().filter(|s| s.price.source == PriceSource::Listed).count(), 0);
    // The original catalogue is unchanged.
    assert_eq!(builtin, Catalogue::builtin());

    let second = [operator_price("Standard_DS4_v2", 1, None)];
    let replaced = catalogue.clone().with_prices(&second).expect("the list is sound");
    assert_eq!(replaced, builtin.clone().with_prices(&second).expect("the list is sound"));
    assert_eq!(catalogue.with_prices(&[]), Ok(builtin));
}

#[test]
fn the_highest_price_is_accepted_and_one_more_is_not() {
    let most = PRICE_MAX_MICRO_USD_PER_HOUR;
    let list = [operator_price("Standard_DS3_v2", most, Some(most))];
    assert!(Catalogue::builtin().with_prices(&list).is_ok());
    assert_eq!(
        refusal(&[operator_price("Standard_DS3_v2", most + 1, None)]),
        "price list entry 1: the dedicated price of VM size 'Standard_DS3_v2' is 1000000000001 \
         micro-USD an hour, above the limit of 1000000000000 (1,000,000 USD an hour); give the \
         price of one node-hour in millionths of a USD"
    );
    assert!(
        refusal(&[operator_price("Standard_DS3_v2", 1, Some(u64::MAX))])
            .starts_with("price list entry 1: the low-priority price of VM size 'Standard_DS3_v2'")
    );
}

#[test]
fn an_operators_list_is_refused_whole_with_the_entry_and_the_remedy() {
    let good = operator_price("Standard_DS3_v2", 100_000, None);
    assert_eq!(
        refusal(&[good.clone(), operator_price("Standard_DS33_v2", 1, None)]),
        "price list entry 2: there is no VM size 'Standard_DS33_v2'; \
         did you mean 'Standard_DS13_v2'?"
    );
    assert_eq!(
        refusal(&[operator_price("gold", 1, None)]),
        "price list entry 1: there is no VM size 'gold'; \
         use a name from the list of VM sizes, or remove the entry"
    );
    assert_eq!(
        refusal(&[good.clone(), operator_price("STANDARD_DS3_V2", 1, None)]),
        "price list entry 2: VM size 'STANDARD_DS3_V2' already has a price in entry 1 \
         (case does not matter); remove one of the two"
    );
    assert_eq!(
        refusal(&[operator_price("Standard_DS3_v2", 5, Some(6))]),
        "price list entry 1: VM size 'Standard_DS3_v2' costs more at low priority (6 micro-USD an \
         hour) than dedicated (5); lower the low-priority price to at most the dedicated one, or \
         leave it out to have a fifth of it"
    );
    // A broken file does not flood the log.
    assert!(refusal(&[operator_price(&"ü".repeat(100_000), 1, None)]).len() < 400);
}
