//! Parts of every ROS 2 node, whatever its purpose: parameter services and events, log, simulated
//! time, life cycle.

use takt_model::{Callback, CallbackKind, Model, TopicId};

/// Topics that every node has, whatever it is for (`rclcpp` 28, `rclcpp_lifecycle` 28).
const INFRASTRUCTURE_TOPICS: [&str; 4] = ["/parameter_events", "/rosout", "/clock", "/robot_description"];
/// Ends of names of services and topics that `rclcpp` and `rclcpp_lifecycle` bring.
const INFRASTRUCTURE_ENDINGS: [&str; 13] = [
    "/describe_parameters",
    "/get_parameter_types",
    "/get_parameters",
    "/list_parameters",
    "/set_parameters",
    "/set_parameters_atomically",
    "/get_type_description",
    "/change_state",
    "/get_state",
    "/get_available_states",
    "/get_available_transitions",
    "/get_transition_graph",
    "/transition_event",
];

/// It is one of those that every node of ROS 2 has.
pub(crate) fn is_brought_along(model: &Model, callback: &Callback) -> bool {
    activating(model, callback).is_some_and(is_infrastructure)
}

/// The topic whose messages activate it.
pub(crate) fn activating<'m>(model: &'m Model, callback: &Callback) -> Option<&'m str> {
    model.topics.get(takes(callback.kind)?.0).map(|topic| topic.name.as_str())
}

/// The topic that activates a callback. Periods of timers are in their names.
pub(crate) fn takes(kind: CallbackKind) -> Option<TopicId> {
    match kind {
        CallbackKind::Subscription { topic } => Some(topic),
        CallbackKind::Service { requests } => Some(requests),
        CallbackKind::Client { responses } => Some(responses),
        CallbackKind::Timer { .. } | CallbackKind::Source => None,
    }
}

/// A topic that nodes have whatever they are for.
pub(crate) fn is_infrastructure(topic: &str) -> bool {
    // Hidden topics of services are named after the service, with a word behind it; parts of cut
    // cycles end in a number.
    let service = topic.split([' ', '#']).next().unwrap_or(topic);
    INFRASTRUCTURE_TOPICS.contains(&service)
        || INFRASTRUCTURE_ENDINGS.iter().any(|ending| service.ends_with(ending))
}
