package bootstrapdata

import (
	"io/fs"
	"strings"
)

// SentinelPath is the file by which the kubeadm, k3s and RKE2 bootstrap
// providers signal success (CAPI's bootstrap provider contract).
const SentinelPath = "/run/cluster-api/bootstrap-success.complete"

// Config is the content of bootstrap data. The fields are executed in the order in which
// they are listed here, which is the order of cloud-init's modules; files with Defer
// set come after NTP. A Config holds secrets.
type Config struct {
	// Format is FormatIgnition, or "" for all formats of cloud-init.
	Format string `json:",omitempty"`
	// BootCommands is run as one /bin/sh script whose status does not matter.
	BootCommands []Command
	Files        []File
	Disks        []Disk
	Filesystems  []Filesystem
	Mounts       []Mount
	// HostName is nil when the document sets none.
	HostName *HostName
	Groups   []Group
	Users    []User
	// RootSSHKeys are added to the user root.
	RootSSHKeys []string `json:",omitempty"`
	// Passwords are set for users that exist or are in Users.
	Passwords []Password `json:",omitempty"`
	// NTP is nil when the document asks for no time service.
	NTP *NTP
	// Directories come before the deferred Files, and Links after them.
	Directories []Directory `json:",omitempty"`
	Links       []Link      `json:",omitempty"`
	// Units are started together after all fields above are executed.
	Units []Unit `json:",omitempty"`
	// Commands is run as one /bin/sh script at the end.
	Commands []Command
	// Scripts are run at the end, by the program that their first line names.
	// They and Commands run in the order of their names, in which Commands is
	// called "runcmd"; a failing one does not stop the others.
	Scripts []ScriptFile `json:",omitempty"`
	// Sentinel is the file whose presence at the end means success. If it is "", the
	// exit status of Commands and of all Scripts decides.
	Sentinel string
}

// ScriptFile is a script with a first line that starts with "#!". Its name
// is valid as a file name.
type ScriptFile struct{ Name, Body string }

// Command is a line of shell, or a list of words that no shell expands.
type Command struct {
	Shell string
	// Args is used instead of Shell when it is not nil.
	Args []string
}

// File is a file to write. Directories above it are made when missing.
type File struct {
	Path    string
	Content []byte
	// User and Group are names; "" leaves what the file has (a new file
	// belongs to root).
	User, Group string
	// UID and GID are used instead of names when they are not nil.
	UID, GID *int `json:",omitempty"`
	// Mode is the final mode of the file as in package fs.
	Mode fs.FileMode
	// KeepMode leaves the mode of a file that exists.
	KeepMode bool `json:",omitempty"`
	// New refuses a file that exists.
	New bool `json:",omitempty"`
	// Append adds Content to a file that exists.
	Append bool
	// Defer writes the file after the users were made.
	Defer bool
}

// Directory is a directory to make. User, Group, UID, GID and KeepMode mean the
// same as in File.
type Directory struct {
	Path        string
	User, Group string
	UID, GID    *int
	Mode        fs.FileMode
	KeepMode    bool
	// New refuses a directory that exists.
	New bool
}

// Link is a symbolic link to make, or a hard one.
type Link struct {
	Path, Target string
	Hard         bool
	// Overwrite replaces a file or a link that exists.
	Overwrite bool
}

// Unit is a systemd unit to enable, disable or mask. Its files are in Config.Files.
type Unit struct {
	Name string
	// Enable starts the unit now and at every boot; Disable and Mask do the opposite.
	Enable, Disable, Mask bool
	// Given is true when the document contains the unit. Changed is true when the
	// document contains the unit or a drop-in of it.
	Given, Changed bool
	// Awaited is true for a unit that writes the success file.
	Awaited bool
}

// Starts reports whether the unit is started. A template unit cannot be started.
func (u Unit) Starts() bool { return u.Enable && !strings.Contains(u.Name, "@.") }

// Disk is a partition table to write.
type Disk struct {
	Device string
	// TableType is "mbr" or "gpt".
	TableType string
	Overwrite bool
	// Remove wipes the partition table instead of writing one.
	Remove bool
	// Whole makes one partition of the whole disk; Partitions is empty then.
	Whole      bool
	Partitions []Partition
}

// Partition is a share of a disk in percent, with a type such as "82", or ""
// for the default.
type Partition struct {
	Percent float64
	Type    string
}

// Filesystem is a file system to make.
type Filesystem struct {
	Label, Type, Device string
	// Partition is "auto", "any", "none" or a number.
	Partition string
	Overwrite bool
	// Keep makes the file system on an empty Device only, and accepts an existing
	// file system with this type and label.
	Keep bool `json:",omitempty"`
	// UUID is the UUID of the new file system, or "" for a random UUID.
	UUID string `json:",omitempty"`
	// Replace is a file system type that may be overwritten, or "".
	Replace string
	Options []string
	// Command replaces mkfs: a line of shell in which %(label)s, %(filesystem)s
	// and %(device)s are placeholders.
	Command string
}

// Mount is a line of fstab. All fields are set.
type Mount struct {
	Device, Point, Type, Options, Dump, Pass string
}

// HostName is the new name of the host.
type HostName struct{ Name string }

// Group is a group to make, and existing users to add to it.
type Group struct {
	Name    string
	Members []string
	GID     string `json:",omitempty"`
	System  bool   `json:",omitempty"`
}

// User is a user to make. For a user that exists already only PlainPassword,
// HashedPassword, Lock, Sudo and SSHKeys are applied.
type User struct {
	Name, Gecos, HomeDir, Shell, PrimaryGroup, UID string
	ExpireDate, Inactive, SELinuxUser              string
	Groups                                         []string
	System, NoCreateHome, NoUserGroup, NoLogInit   bool
	// KeepGroups is true when missing groups must not be made.
	KeepGroups bool
	// Password is the crypt(3) hash that a new user starts with.
	Password string
	// HashedPassword and PlainPassword are set whether or not the user existed.
	HashedPassword, PlainPassword string
	// Lock disables login by password; the hash is kept behind the lock.
	Lock    bool
	Sudo    []string
	SSHKeys []string
	// Plain is true for Ignition: a system user gets a home directory, too, and for
	// an existing user only a password and SSHKeys are allowed.
	Plain bool `json:",omitempty"`
}

// Password is a new password of a user.
type Password struct {
	User string
	// Value is a crypt(3) hash if Hashed is set.
	Value  string
	Hashed bool
	// Expire requires a new password at the next login.
	Expire bool
}

// NTP is the time service. Servers and Pools are not both empty.
type NTP struct {
	// Client is "chrony", "systemd-timesyncd", "ntp", or "auto".
	Client         string
	Servers, Pools []string
}

// The formats of bootstrap data that Cluster API defines.
const (
	FormatCloudConfig = "cloud-config"
	FormatIgnition    = "ignition"
)

// DefaultFileMode is the mode of a file whose document gives none.
const DefaultFileMode fs.FileMode = 0o644
