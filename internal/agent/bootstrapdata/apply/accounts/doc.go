// Package accounts makes the groups and users of bootstrap data, with their
// passwords, sudo rules and SSH keys, and removes them on undo. Accounts that
// existed before keep what they have, as with cloud-init; what changes of them is restored
// on undo.
package accounts
