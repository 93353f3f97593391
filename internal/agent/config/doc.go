// Package config reads the agent's configuration. It is strict: an unknown key
// or a value that makes no sense is an error, so that a typing error doesn't
// turn up as a host that stays away.
package config
