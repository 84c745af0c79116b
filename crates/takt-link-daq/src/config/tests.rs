use super::*;

#[derive(Debug, Deserialize)]
struct File {
    link: LinkConfig,
}

fn read(text: &str) -> Result<LinkConfig, String> {
    toml::from_str::<File>(text).map(|file| file.link).map_err(|error| error.to_string())
}

#[test]
fn every_kind_reads_with_its_defaults_and_unknown_keys_are_errors() {
    for kind in LinkConfig::KINDS {
        let link = read(&format!("link = {{ kind = '{kind}' }}")).unwrap();
        assert_eq!(link.kind(), kind);
        link.validate().unwrap();
        assert!(read(&format!("link = {{ kind = '{kind}', kidn = 1 }}")).unwrap_err().contains("kidn"));
        assert_eq!(
            toml::from_str::<File>(&toml::to_string(&Write { link: &link }).unwrap()).unwrap().link,
            link
        );
    }
    assert!(read("link = { kind = 'rs485' }").unwrap_err().contains("eventfd"));
}

#[derive(Serialize)]
struct Write<'a> {
    link: &'a LinkConfig,
}

#[test]
fn a_part_of_a_table_leaves_the_other_defaults() {
    let link = read("[link]\nkind = 'udp'\necho.cpus = '1'").unwrap();
    assert_eq!(link.echo().unwrap().policy, Policy::Fifo { priority: 98 });
    assert_eq!(link.echo().unwrap().cpus, CpuSet::single(1).ok());
}

#[test]
fn impossible_values_are_reported_with_their_key() {
    for (text, key) in [
        ("kind = 'udp', resend_after = '1us'", "link.resend_after = 1us"),
        ("kind = 'udp', drop_every = 1", "link.drop_every"),
        ("kind = 'udp', echo.policy = 'fifo:0'", "priority"),
        ("kind = 'simulated', ai_rate_hz = 0.0", "link.ai_rate_hz"),
        ("kind = 'simulated', ai_rate_hz = nan", "link.ai_rate_hz"),
        ("kind = 'simulated', ao_rate_hz = inf", "link.ao_rate_hz"),
        ("kind = 'simulated', settling = '2s'", "link.settling"),
        ("kind = 'simulated', bits = 0", "link.bits"),
        ("kind = 'simulated', range_v = [5.0, 5.0]", "link.range_v"),
        ("kind = 'simulated', noise_v = -1.0", "link.noise_v"),
        ("kind = 'comedi', settling = '1ms'", "link.settling"),
        ("kind = 'iio', input.channel = '../voltage0'", "link.input.channel"),
    ] {
        let error = match read(&format!("link = {{ {text} }}")) {
            Ok(link) => link.validate().unwrap_err().to_string(),
            Err(error) => error,
        };
        assert!(error.contains(key), "{text}: {error}");
    }
}
