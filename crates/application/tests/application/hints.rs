//! What applications want of their rates.
use crate::agents::{agent, first_policy, open, policy, two_agents};
use catchment_agent::policy::Policy;
use catchment_agent::protocol::Account;
use catchment_agent::status;
use catchment_application::Hint;
use catchment_conformance::eventually;

fn account(agent: &str, application: &str) -> Account {
    let accounts = status(agent).unwrap();
    accounts.into_iter().find(|account| account.application == application).unwrap()
}

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 1e-6
}

#[test]
fn an_application_lowers_its_weight_and_does_not_raise_it() {
    let (agent, name) = agent("weights");
    let (store, vision) = (open("store", &name), open("vision", &name));
    let shares = || (account(&name, "vision").share, account(&name, "store").share);
    let are = |(a, b): (f64, f64)| {
        let (vision, store) = shares();
        is_near(vision, a) && is_near(store, b)
    };
    eventually("the shares of the policy", || are((0.75, 0.25)));
    vision.hint(Hint::Weight(0.5)).unwrap();
    eventually("a third and two", || are((1.0 / 3.0, 2.0 / 3.0)));
    let said = |hint| vision.hint(hint).unwrap_err().to_string();
    let refused = said(Hint::Weight(3.5));
    assert!(
        refused
            .contains("a weight of 3.5 is more than 3, which the agent's policy gives \"vision\""),
        "{refused}"
    );
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(said(Hint::Weight(wrong)).contains("is not above 0"));
        assert!(said(Hint::Demand(wrong)).contains("is not above 0"));
    }
    // The policy has the last word, whatever was asked for before.
    let mut lower = policy(&name);
    lower["applications"][1]["weight"] = serde_json::json!(0.25);
    agent.reload(Policy::parse(&lower.to_string()).unwrap()).unwrap();
    eventually("a fifth and four", || are((0.2, 0.8)));
    agent.reload(Policy::parse(&policy(&name).to_string()).unwrap()).unwrap();
    eventually("what was asked for", || are((1.0 / 3.0, 2.0 / 3.0)));
    drop(store);
}

#[test]
fn a_preemptible_application_has_a_hundredth_while_others_want_it() {
    let (_agent, name) = agent("preempted");
    let (_store, vision) = (open("store", &name), open("vision", &name));
    vision.hint(Hint::Preemptible(true)).unwrap();
    let share = 0.03 / 1.03;
    eventually("the share", || is_near(account(&name, "vision").share, share));
    // Alone it has all.
    drop(_store);
    eventually("all", || is_near(account(&name, "vision").share, 1.0));
    vision.hint(Hint::Preemptible(false)).unwrap();
    let _store = open("store", &name);
    eventually("its own again", || is_near(account(&name, "vision").share, 0.75));
}

/// The most that a policy lets an application have is what hosts agree on, whatever it says that it wants; a demand below counts.
#[test]
fn a_maximum_of_the_policy_is_agreed_on() {
    let ([first, _second], names) = two_agents("maxima", 1_000_000_000);
    let account = || account(&names[0], "vision");
    let vision = open("vision", &names[0]);
    let mut policy = first_policy(&names[0], 1_000_000_000);
    policy["applications"][1]["max_bytes_per_s"] = serde_json::json!(4e5);
    first.reload(Policy::parse(&policy.to_string()).unwrap()).unwrap();
    vision.hint(Hint::Demand(9e5)).unwrap();
    eventually("the maximum", || (1.0..=4.01e5).contains(&account().rate_bytes_per_s));
    assert_eq!(account().most_bytes_per_s, Some(4e5));
    vision.hint(Hint::Demand(2e5)).unwrap();
    eventually("the demand", || (1.0..=2.01e5).contains(&account().rate_bytes_per_s));
}

/// What is not asked for others have from the beginning, before anybody has sent a byte.
#[test]
fn a_demand_leaves_the_rest_to_others() {
    const BYTES_PER_S: u64 = 1_000_000_000;
    let (_agents, names) = two_agents("demands", BYTES_PER_S);
    let rate = |application| account(&names[0], application).rate_bytes_per_s;
    let vision = open("vision", &names[0]);
    vision.hint(Hint::Demand(5e5)).unwrap();
    eventually("no more than that", || (1.0..=5.01e5).contains(&rate("vision")));
}
