package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options are the settings of a cluster. The zero value works within this repository.
type Options struct {
	// Folder gets data, credentials and logs. It must be absent or empty, and is left for the caller to read and to
	// remove. Empty: a temporary folder, which Stop removes.
	Folder string
	// Checkout is the folder of this repository. Empty: the one that go finds from the working directory.
	Checkout string
	// Manager is the file of this provider's manager. Empty: it is built from Checkout.
	Manager string
	// ManagerArgs are further arguments for it; they override those that Start gives.
	ManagerArgs []string
	// Simulation has the manager built for virtual hosts: one that takes addresses of the loopback for endpoints, which no
	// released manager does.
	Simulation bool
	// OneVersion has every kind in the version alone that its objects are stored in. Cluster API's are otherwise in two, and
	// every change of an object is converted by a call of its manager: with many clusters that is a good part of what all
	// processes do.
	OneVersion bool
	// Args are further arguments for Cluster API's managers, by their names: capi-core, capi-kubeadm-bootstrap,
	// capi-kubeadm-control-plane.
	Args map[string][]string
	// Alone leaves Cluster API's managers out: their kinds and roles are there, but nothing reconciles, completes or checks
	// their objects.
	Alone bool
	// Managers is how many managers of this provider there are; 0 means one. Several elect a leader, and have one address
	// for the agent API, where the leader alone listens: what a Service does that selects the leader. Webhooks are those of
	// the last one, which is not the first to lead.
	Managers int
	// Diagnostics has this provider's managers serve metrics and profiles to everybody on this machine, see
	// Manager.Metrics.
	Diagnostics bool
	// Progress gets a line when a step starts, now and then while it works, and when it ends. Nil: nobody is told.
	Progress io.Writer
}

// makeFolder returns the folder for everything, and whether it is to be removed at the end.
func (o Options) makeFolder() (folder string, temporary bool, err error) {
	if o.Folder == "" {
		folder, err := os.MkdirTemp("", "elemental-embedded-")
		if err != nil {
			return "", false, fmt.Errorf("making a temporary folder: %w", err)
		}
		return folder, true, nil
	}
	folder, err = filepath.Abs(o.Folder)
	if err != nil {
		return "", false, fmt.Errorf("finding folder %s: %w", o.Folder, err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", false, fmt.Errorf("making folder %s: %w", folder, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", false, fmt.Errorf("looking into folder %s: %w", folder, err)
	}
	if len(entries) > 0 {
		return "", false, fmt.Errorf("using folder %s: %w: name another one, or remove it if no cluster runs there", folder, errNotEmpty)
	}
	// It gets keys, also where it was there with other permissions.
	if err := os.Chmod(folder, 0o700); err != nil {
		return "", false, fmt.Errorf("closing folder %s to others: %w", folder, err)
	}
	return folder, false, nil
}

var errNotEmpty = errors.New("it is not empty")
