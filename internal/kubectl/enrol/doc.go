// Package enrol prints what makes a machine a host of an ElementalRegistration: a shell script,
// or the first configuration of a system that contains it. It reads the registration and the
// Secret of its token, and says what is missing.
package enrol
