// Package hoststatus derives an ElementalHost's conditions from its spec and
// the facts its agent reported.
//
// The derivation is pure, and everybody who changes a fact applies it and
// writes facts and conditions together: the agent API when it records a report,
// the host controller when the spec changed. Both come to the same result, so
// neither has to write after the other, and a host at rest causes no writes.
package hoststatus
