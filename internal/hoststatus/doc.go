// Package hoststatus derives an ElementalHost's conditions from its spec and the facts
// that its agent reported.
//
// It is pure. The agent API calls it when it writes a report, and the host controller when
// the spec has changed. Each writes facts and conditions together. Both get the same
// result, so a host without changes causes no writes.
package hoststatus
