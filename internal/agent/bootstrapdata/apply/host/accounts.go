package host

import (
	"fmt"
	"strconv"
	"strings"
)

// Accounts are the users and groups of a host. The agent is a static binary, so
// only local files count.
type Accounts struct{ files *Files }

// Account is a user or a group of the host.
type Account struct {
	UID, GID int
	Home     string
}

// Entry finds a line of passwd(5), group(5) or shadow(5) by name. The agent is
// a static binary, so only local files count.
func (a *Accounts) Entry(file, name string) ([]string, error) {
	text, err := a.files.Read(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == name && len(fields) > 2 {
			return fields, nil
		}
	}
	return nil, nil
}

// User returns nil for a user that does not exist.
func (a *Accounts) User(name string) (*Account, error) {
	fields, err := a.Entry("/etc/passwd", name)
	if err != nil || len(fields) < 6 {
		return nil, err
	}
	u := &Account{Home: fields[5]}
	if u.UID, err = strconv.Atoi(fields[2]); err == nil {
		u.GID, err = strconv.Atoi(fields[3])
	}
	if err != nil {
		return nil, fmt.Errorf("reading /etc/passwd: the entry of %s is damaged: %w", name, err)
	}
	return u, nil
}

// Group returns nil for a group that does not exist. Only GID is set.
func (a *Accounts) Group(name string) (*Account, error) {
	fields, err := a.Entry("/etc/group", name)
	if err != nil || fields == nil {
		return nil, err
	}
	gid, err := strconv.Atoi(fields[2])
	if err != nil {
		return nil, fmt.Errorf("reading /etc/group: the entry of %s is damaged: %w", name, err)
	}
	return &Account{GID: gid}, nil
}
