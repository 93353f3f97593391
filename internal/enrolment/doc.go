// Package enrolment holds what the agent API and the registration controller
// both know of an enrolment: the format of token Secrets, the agent's first
// configuration and the URL in it. It is pure: no I/O, no clock of its own.
package enrolment
