package journal

import (
	"io/fs"
	"slices"
)

// Journal stores the progress of one operation. While Apply runs, nothing else uses
// the journal.
type Journal interface {
	// Load returns the Progress that was saved last, or the zero Progress.
	Load() (Progress, error)
	// Save makes a Progress durable before it returns.
	Save(Progress) error
}

// Progress is the progress of an operation. It holds no secrets: these are in files
// of the operation's directory.
type Progress struct {
	// Config is the hash of the Config that the operation began with.
	Config string `json:"config"`
	// Done counts the steps that are complete.
	Done int `json:"done"`
	// Current is the step that may have been begun.
	Current *Intent `json:"current,omitempty"`
	// Warnings are for the report, in order.
	Warnings []string `json:"warnings,omitempty"`
	// Failed is the first failure among several final scripts. Sentinel reports
	// whether the success file existed when one of them ended.
	Failed   *Outcome `json:"failed,omitempty"`
	Sentinel bool     `json:"sentinel,omitempty"`
	// Outcome is set when the operation is over.
	Outcome  *Outcome `json:"outcome,omitempty"`
	Manifest Manifest `json:"manifest"`
}

// Intent is what a step decided to do before it changed the host.
type Intent struct {
	Step string `json:"step"`
	// Skip is true when there is nothing to do.
	Skip bool `json:"skip,omitempty"`
	// Existed is true when the object of the step existed before, such as a user.
	Existed bool `json:"existed,omitempty"`
	// Base and Want are SHA-256 of a file's content before and after.
	Base string `json:"base,omitempty"`
	Want string `json:"want,omitempty"`
	// Device is the block device that the step chose.
	Device string `json:"device,omitempty"`
}

// Outcome is the result of an operation.
type Outcome struct {
	Success bool `json:"success"`
	// Step, Reason and Output say what failed. Output is redacted and at most
	// bootstrapdata.MaxTail bytes.
	Step        string `json:"step,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Output      string `json:"output,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
}

// Manifest lists what an operation made or changed and what Undo can revert. Paths
// are the host's. Formatted disks and the effects of scripts are not listed.
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
	// Units are systemd units that were started, stopped, enabled or disabled.
	Units  []TouchedUnit `json:"units,omitempty"`
	Users  []MadeUser    `json:"users,omitempty"`
	Groups []string      `json:"groups,omitempty"`
	// Locked are users that existed and could log in by password before.
	Locked []string `json:"locked,omitempty"`
	// Passwords are those of users that existed, as they were before.
	Passwords []Password `json:"passwords,omitempty"`
	Mounts    []string   `json:"mounts,omitempty"`
	Swaps     []string   `json:"swaps,omitempty"`
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

// Password is an entry of shadow(5).
type Password struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
	// Changed is the day of the last change.
	Changed string `json:"changed"`
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

// Has reports whether a path is recorded as made or replaced.
func (m *Manifest) Has(path string) bool {
	return slices.Contains(m.Files, path) ||
		slices.ContainsFunc(m.Replaced, func(r Replaced) bool { return r.Path == path }) ||
		slices.ContainsFunc(m.Links, func(l ReplacedLink) bool { return l.Path == path })
}

// AddOnce appends an item unless the list contains it.
func AddOnce(list []string, item string) []string {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}
