// Package config reads the agent's configuration. Unknown keys and invalid values are
// errors: a typing error would otherwise show only as a host that never connects.
package config
