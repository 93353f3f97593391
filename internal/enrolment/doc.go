// Package enrolment holds what the agent API and the registration controller
// both know of an enrolment: the format of token Secrets, the names that hosts
// get and the URL that they are told. It is pure: no I/O, no clock of its own.
package enrolment
