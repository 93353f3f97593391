// Package agent is the run loop of the host agent: read the plan, report,
// execute, report.
//
// Three activities run side by side. Polling holds the long-poll open, which
// is how the manager knows that the host is alive, and applies what a plan
// desires. Working runs one operation at a time. Reporting sends facts and
// results until they are acknowledged. They meet in the state.Store, which is
// durable, and in signals that carry nothing.
//
// What the loop guarantees: an operation with a recorded result is never run
// again, only reported again; one that was begun is resumed, with or without a
// manager; a plan that changes or vanishes interrupts nothing; a manager that
// doesn't know the host makes it do nothing at all.
package agent
