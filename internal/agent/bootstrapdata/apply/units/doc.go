// Package units starts, enables, disables and masks the systemd units of Ignition
// data, and restores their earlier state on undo.
package units
