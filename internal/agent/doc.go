// Package agent is the run loop of the host agent: it gets the plan, executes it, and
// reports.
//
// Eight activities run concurrently; the three main ones are:
//
//   - poller keeps a long poll open, from which the manager knows that the host is
//     alive, and stores the plan it gets (plan.go).
//   - operationLoop runs one operation at a time. While none is due, it applies the
//     desired endpoint, the Node's providerID and the agent's release (idle.go).
//   - reporter sends facts and results until the manager has acknowledged them.
//
// The others watch the host's addresses, keep the endpoint that the host serves itself,
// and, if the plan desires it, probe the endpoint, keep a tunnel open and keep a bundle of
// Kubernetes on the disk.
// All share the state.Store, which is durable, and wake each other with signals that
// carry no data.
//
// Guarantees: an operation with a recorded result is never run again, only reported
// again. An operation that was begun is resumed, with or without a manager. A plan that
// changes or vanishes interrupts no operation, except that a reset supersedes a
// bootstrap. A manager that does not know the host sends no plan, so the agent begins no
// new operation.
//
// Package assembly puts an Agent together. This package does not know the operating
// system, nor how any operation works.
package agent
