// Package registration reconciles ElementalRegistrations: it publishes where
// hosts find the agent API and what they may trust, keeps the registration's
// token Secrets, and tells whether the agents that it pins are there.
//
// One token is made by itself and never renewed by itself, since a token nobody
// waits for is a risk without a use. Deleting its Secret revokes it and makes
// another. Token Secrets of an administrator's own hand count as well. Hosts are
// none of this package's business: they stay when their registration goes.
package registration
