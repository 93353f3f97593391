package apply

import (
	"io/fs"
	"slices"
)

// Journal keeps the progress of one operation. Apply is its only user while it
// runs.
type Journal interface {
	// Load returns what Save was last given, or the zero Progress.
	Load() (Progress, error)
	// Save makes a Progress durable before it returns.
	Save(Progress) error
}

// Progress is how far an operation came. It is plain data for JSON and holds no
// secrets: those are in files of the operation's directory.
type Progress struct {
	// Config is the hash of the Config that the operation began with.
	Config string `json:"config"`
	// Done counts the steps that are complete.
	Done int `json:"done"`
	// Current is the step that may have been begun.
	Current *Intent `json:"current,omitempty"`
	// Warnings are for the report, in order.
	Warnings []string `json:"warnings,omitempty"`
	// Failed is the first of several final scripts that failed, and Sentinel
	// tells whether the success file was there when one of them ended.
	Failed   *Outcome `json:"failed,omitempty"`
	Sentinel bool     `json:"sentinel,omitempty"`
	// Outcome is set when the operation is over.
	Outcome  *Outcome `json:"outcome,omitempty"`
	Manifest Manifest `json:"manifest"`
}

// Intent is what a step decided before it touched the host.
type Intent struct {
	Step string `json:"step"`
	// Skip is true when there is nothing to do.
	Skip bool `json:"skip,omitempty"`
	// Existed is true when what the step makes was there before.
	Existed bool `json:"existed,omitempty"`
	// Base and Want are SHA-256 of a file's content before and after.
	Base string `json:"base,omitempty"`
	Want string `json:"want,omitempty"`
	// Device is the block device that the step decided on.
	Device string `json:"device,omitempty"`
}

// Outcome is how an operation ended.
type Outcome struct {
	Success bool `json:"success"`
	// Step, Reason and Output say what failed. Output is redacted and at most
	// bootstrap.MaxTail bytes.
	Step        string `json:"step,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Output      string `json:"output,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Manifest is what an operation made or changed, as far as it can be taken
// back. Paths are the host's; formatted disks are not in it, nor is what
// scripts did.
type Manifest struct {
	// Dirs are directories that were made, outer ones first.
	Dirs []string `json:"dirs,omitempty"`
	// Files are files that were not there before.
	Files []string `json:"files,omitempty"`
	// Replaced are files that were there before.
	Replaced []Replaced `json:"replaced,omitempty"`
	// Attributes are directories whose mode or owner was changed; they have no
	// copy.
	Attributes []Replaced `json:"attributes,omitempty"`
	// Links are symbolic links that were replaced.
	Links []ReplacedLink `json:"links,omitempty"`
	// Units are systemd units that were taken into or out of use.
	Units  []TouchedUnit `json:"units,omitempty"`
	Users  []MadeUser    `json:"users,omitempty"`
	Groups []string      `json:"groups,omitempty"`
	// Locked are users that existed and could log in by password before.
	Locked []string `json:"locked,omitempty"`
	Mounts []string `json:"mounts,omitempty"`
	Swaps  []string `json:"swaps,omitempty"`
	// Services are systemd units to reload after their files were restored.
	Services []string `json:"services,omitempty"`
	// HostName is the name before it was changed, or "".
	HostName string `json:"hostName,omitempty"`
}

// Replaced is a file as it was before the operation.
type Replaced struct {
	Path string `json:"path"`
	// Backup is the name of the copy within the operation's directory.
	Backup string      `json:"backup"`
	Mode   fs.FileMode `json:"mode"`
	UID    int         `json:"uid"`
	GID    int         `json:"gid"`
}

// ReplacedLink is a symbolic link as it was before the operation.
type ReplacedLink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// TouchedUnit is a systemd unit as it was before the operation.
type TouchedUnit struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled,omitempty"`
	Active  bool   `json:"active,omitempty"`
}

// MadeUser is a user that was made.
type MadeUser struct {
	Name string `json:"name"`
	// Home is true when the home directory was made with the user.
	Home bool `json:"home,omitempty"`
}

// knows tells whether a path is recorded already, as made or as replaced.
func (m *Manifest) knows(path string) bool {
	return slices.Contains(m.Files, path) ||
		slices.ContainsFunc(m.Replaced, func(r Replaced) bool { return r.Path == path }) ||
		slices.ContainsFunc(m.Links, func(l ReplacedLink) bool { return l.Path == path })
}

func add(list []string, item string) []string {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}
