//! What is said of an agent that runs: accounts, rates, why an application has its rate.
use crate::args::{AgentExplainArgs, AgentStatusArgs, AgentTopArgs};
use crate::failure::{Code, Failure};
use crate::output;
use crate::output::metrics;
use crate::output::table::Table;
use catchment::observe::StatusSource;
use catchment::session::names::printable;
use catchment_agent::Inquiry;
use catchment_agent::explain::{
    Binds, ExplainError, Explanation, Observer, Rate, Spent, View, explain,
};
use catchment_agent::protocol::{Account, By, Offered, Processor, Rounds};
use serde_json::Value;
use std::time::Duration;

/// Time to the first look at rates.
const FIRST: Duration = Duration::from_millis(500);
/// Characters of a bar: the device.
const BAR: usize = 24;

/// What the live page shows.
pub(super) struct Shown {
    pub(super) observer: Observer,
}

impl StatusSource for Shown {
    fn status(&mut self) -> Result<Value, String> {
        let view = self.observer.look().map_err(|error| error.to_string())?;
        serde_json::to_value(view).map_err(|error| error.to_string())
    }

    fn metrics(&mut self) -> Result<String, String> {
        let mut inquiry = Inquiry::new(self.observer.agent());
        let standing = inquiry.ask().map_err(|error| error.to_string())?;
        let own = (standing.rounds.as_ref(), standing.processor.as_ref());
        Ok(metrics::of_agent(inquiry.agent(), &standing.applications, own))
    }
}

/// Shows what each application has had of the device.
pub(super) fn status(args: &AgentStatusArgs) -> Result<(), Failure> {
    let view = look(&mut Observer::new(&args.of.agent))?;
    let View { accounts, rounds, peers: known, processor, decided_ago_s, services, .. } = &view;
    if args.prometheus {
        return output::print(&metrics::of_agent(
            &view.agent,
            accounts,
            (rounds.as_ref(), processor.as_ref()),
        ));
    }
    if args.of.json {
        accounts.iter().try_for_each(output::print_json)?;
        known.iter().try_for_each(output::print_json)?;
        rounds.iter().try_for_each(output::print_json)?;
        services.iter().try_for_each(output::print_json)?;
        return processor.iter().try_for_each(output::print_json);
    }
    output::print(&applications(accounts))?;
    for account in accounts.iter().filter(|account| account.failed > 0) {
        output::print(&failures(account))?;
    }
    for Offered { service, application, process, calls } in services {
        let text =
            format!("service {service}: {application}, process {process}, called {calls} times\n");
        output::print(&text)?;
    }
    if let Some(ago_s) = decided_ago_s {
        output::print(&format!("shares last changed {ago_s:.1} s ago\n"))?;
    }
    if let Some(processor) = processor {
        output::print(&format!("engine: {}\n", steps(processor)))?;
    }
    let Some(rounds) = rounds else { return Ok(()) };
    output::print(&format!(
        "host {}, epoch {}: {} rounds, {}\n{}",
        rounds.host,
        rounds.epoch,
        rounds.rounds,
        movement(rounds),
        sending(rounds).map_or_else(String::new, |text| text + "\n"),
    ))?;
    let heading =
        ["peer", "host", "epoch", "session", "connections", "shared queue pairs", "rounds by"];
    let mut table = Table::new(&heading, 1);
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    for peer in known {
        let name = peer.address.as_ref().unwrap_or(&peer.name);
        let session = if peer.connected { "yes" } else { &peer.reason };
        table.row(vec![
            printable(name, 64),
            number(peer.host),
            number(peer.epoch),
            session.to_owned(),
            peer.connections.to_string(),
            peer.queue_pairs.to_string(),
            way(peer.by).to_owned(),
        ]);
    }
    output::print(&table.text())
}

/// Returns a table of what each application has had.
fn applications(accounts: &[Account]) -> String {
    let heading = [
        "application", "process", "weight", "share", "queue pairs", "requests", "done", "failed",
        "waiting", "bytes", "memory", "bytes/s agreed", "asked for",
    ];
    let mut table = Table::new(&heading, 1);
    for account in accounts {
        table.row(vec![
            account.application.clone(),
            account.process.to_string(),
            account.weight.to_string(),
            percent(account.share),
            account.queue_pairs.to_string(),
            account.requests.to_string(),
            account.done.to_string(),
            account.failed.to_string(),
            account.waiting.to_string(),
            account.bytes.to_string(),
            account.memory_bytes.to_string(),
            agreed(account.rate_bytes_per_s),
            asked(account),
        ]);
    }
    table.text()
}

/// Returns why requests of an application failed.
fn failures(account: &Account) -> String {
    let by = account.failed_by.iter().map(|(status, count)| format!("{count} {status}"));
    let by: Vec<String> = by.collect();
    let Account { application, process, failed, .. } = account;
    format!("{application}, process {process}: {failed} failed: {}\n", by.join(", "))
}

/// Returns which way messages of rounds go.
const fn way(by: Option<By>) -> &'static str {
    match by {
        Some(By::Write) => "write",
        Some(By::Session) => "session",
        None => "",
    }
}

fn failure(error: ExplainError) -> Failure {
    let is_gone = matches!(error, ExplainError::Agent(_));
    Failure::new(if is_gone { Code::Unreachable } else { Code::Failed }, error)
}

fn look(observer: &mut Observer) -> Result<View, Failure> {
    observer.look().map_err(failure)
}

/// Shows what each application has, beside what was decided, each second.
pub(super) fn top(args: &AgentTopArgs) -> Result<(), Failure> {
    let mut observer = Observer::new(&args.agent);
    look(&mut observer)?;
    // Rates are of the time since the look before.
    std::thread::sleep(FIRST);
    output::top::show(args.json, || look(&mut observer), rates)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// Returns the parts of the engine's time.
fn steps(processor: &Processor) -> String {
    processor.parts().map(|(step, part)| format!("{step} {}", percent(part))).join(", ")
}

/// Returns a bar for a part of the device, with a mark where what was decided ends.
fn bar(measured: f64, decided: f64) -> String {
    let cell = |part: f64| (part * BAR as f64).round() as usize;
    let (full, mark) = (cell(measured), cell(decided));
    let sign = |at: usize| match () {
        () if decided > 0.0 && at == mark.saturating_sub(1) => '|',
        () if at < full => '#',
        () => '.',
    };
    (0..BAR).map(sign).collect()
}

/// Returns the rates of all applications for people.
fn rates(view: &View) -> String {
    let mut text = format!("agent {}: {} applications", view.agent, view.accounts.len());
    if let Some(rounds) = &view.rounds {
        text += &format!(", {} rounds with other hosts, {}", rounds.rounds, movement(rounds));
        text += &sending(rounds).map_or_else(String::new, |sending| format!("\n{sending}"));
    }
    if let Some(Spent { seconds, processor }) = &view.spent {
        let busy = processor.engine_ns as f64 / (1e9 * seconds.max(1e-9));
        text += &format!("\nengine: {} of a core: {}", percent(busy), steps(processor));
    }
    let heading = ["application", "", "process", "weight", "bytes/s", "had", "decided", "waiting"];
    let mut table = Table::new(&heading, 2);
    // Of who has just come nothing is known yet.
    for rate in &view.rates {
        let account = view.accounts.iter().find(|account| rate.is_of(account));
        let Some(account) = account else { continue };
        let had = rate.measured_share.unwrap_or(0.0);
        let agreed = rate.rate_bytes_per_s > 0.0;
        let decided = match () {
            () if agreed => format!("{:.0} bytes/s", rate.rate_bytes_per_s),
            () if rate.share > 0.0 => percent(rate.share),
            () => "-".to_owned(),
        };
        table.row(vec![
            rate.application.clone(),
            bar(had, if agreed { 0.0 } else { rate.share }),
            rate.process.to_string(),
            rate.weight.to_string(),
            format!("{:.0}", rate.bytes_per_s),
            percent(had),
            decided,
            account.waiting.to_string(),
        ]);
    }
    format!("{text}\n{}", table.text())
}

fn movement(rounds: &Rounds) -> String {
    if rounds.still { "still".to_owned() } else { format!("moving by {:.1e}", rounds.residual) }
}

/// Returns what this host can send, where rates are agreed: by its policy, and what works of it where that is less.
fn sending(rounds: &Rounds) -> Option<String> {
    let (stated, working) = rounds.send_bytes_per_s.zip(rounds.working_bytes_per_s)?;
    let less = if working < stated { " (applications were not served more)" } else { "" };
    Some(format!("sends {working} of {stated} bytes/s{less}"))
}

/// Returns a rate that was agreed with other hosts, if there is one.
fn agreed(bytes_per_s: f64) -> String {
    if bytes_per_s > 0.0 { format!("{bytes_per_s:.0}") } else { String::new() }
}

/// Returns what an application asks for where it is agreed no more: nothing else keeps it from that.
fn asked(account: &Account) -> String {
    account.asks_bytes_per_s.map_or_else(String::new, |asks| format!("{asks:.0}"))
}

/// Says why an application has its rate.
pub(super) fn explanation(args: &AgentExplainArgs) -> Result<(), Failure> {
    let wrong = |text: String| Failure::new(Code::Usage, anyhow::anyhow!(text));
    let interval = Duration::try_from_secs_f64(args.seconds);
    let interval =
        interval.map_err(|error| wrong(format!("--seconds {}: {error}", args.seconds)))?;
    let explained = explain(&args.agent, &args.application, interval);
    for one in &explained.map_err(failure)? {
        if args.json {
            output::print_json(one)?;
        } else {
            output::print(&text(one, args.seconds))?;
        }
    }
    Ok(())
}

fn text(one: &Explanation, seconds: f64) -> String {
    let Explanation { rate, doubled_share, doubled_rate_bytes_per_s } = one;
    let Rate { application, process, weight, alpha, applications, .. } = rate;
    let measured = rate.measured_share.map_or("nobody had any".to_owned(), percent);
    let (has_shares, is_agreed) = (rate.share > 0.0, rate.rate_bytes_per_s > 0.0);
    let (decided, doubled) = if is_agreed {
        let doubled = doubled_rate_bytes_per_s.map(|rate| {
            let weight = 2.0 * weight;
            format!(
                "weight {weight}  would give it {rate:.0} bytes/s at most, at the prices of now\n"
            )
        });
        let decided = format!("{:.0} bytes/s, agreed with other hosts", rate.rate_bytes_per_s);
        (decided, doubled.unwrap_or_default())
    } else if has_shares {
        let doubled = percent(*doubled_share);
        let decided = percent(rate.share) + " of the device while all have something to send";
        (decided, format!("weight {}  would give it {doubled}\n", 2.0 * weight))
    } else {
        ("nothing: the agent serves requests as they come".to_owned(), String::new())
    };
    let binds = match rate.binds {
        Binds::Device if is_agreed => {
            let here = rate.sending_price.unwrap_or_default();
            format!(
                "what was agreed: sending here at a price of {here:.3}, completing where it sends at {:.3}, for each 64 MB/s",
                rate.price - here,
            )
        }
        Binds::Device if !has_shares => "the device's sending".to_owned(),
        Binds::Device => format!("the device's sending, at a price of {:.3}", rate.price),
        Binds::Maximum => "the most that the policy lets it have".to_owned(),
        Binds::Demand => "what it asks for: it did not always have something waiting".to_owned(),
    };
    format!(
        "{application} (process {process}): weight {weight}, {applications} connected, alpha {alpha}\n\
         decided   {decided}\n\
         measured  {:.0} bytes/s, {measured} of all, in {seconds} s\n\
         bound by  {binds}\n\
         {doubled}",
        rate.bytes_per_s,
    )
}
