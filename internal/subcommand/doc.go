// Package subcommand runs programs that consist of commands with flags of their own, such as
// "elemental-agent status --output json".
package subcommand
