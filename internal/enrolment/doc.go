// Package enrolment defines what the agent API and the registration controller share:
// the format of token Secrets, the agent's first configuration, and the server URL in it.
// It does no I/O, and its callers pass the time.
package enrolment
