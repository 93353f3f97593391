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
	// Folder is the folder for data, credentials and logs. It must not exist or be empty, and Stop keeps it. Empty: a
	// temporary folder, which Stop removes.
	Folder string
	// Checkout is the root folder of this repository. Empty: go finds it from the working directory.
	Checkout string
	// Manager is the file of this provider's manager. Empty: it is built from Checkout.
	Manager string
	// ManagerArgs are additional arguments of the manager; they override those of Start.
	ManagerArgs []string
	// Simulation builds the manager for virtual hosts: it accepts loopback addresses as endpoints. Released managers don't.
	Simulation bool
	// OneVersion serves every kind in its storage version only. Cluster API's kinds otherwise have two versions, and every
	// change of an object calls its manager for a conversion, a considerable load with many clusters.
	OneVersion bool
	// InPlaceUpdates starts Cluster API's managers with what updates in place need, the feature gates RuntimeSDK and
	// InPlaceUpdates, and this provider's managers with their hooks. A Namespace must have the label InPlaceLabel.
	InPlaceUpdates bool
	// Args are additional arguments of Cluster API's managers, by name: capi-core, capi-kubeadm-bootstrap,
	// capi-kubeadm-control-plane.
	Args map[string][]string
	// Alone omits Cluster API's managers. Their kinds and roles are installed, but their objects are neither reconciled nor
	// defaulted nor validated.
	Alone bool
	// Managers is the number of this provider's managers; 0 means one. Several managers elect a leader and share one address
	// for the agent API, on which only the leader listens, like behind a Service that selects the leader. The last manager,
	// which is not the first leader, serves the webhooks.
	Managers int
	// Diagnostics makes this provider's managers serve metrics and profiles to all users of this machine, see
	// Manager.Metrics.
	Diagnostics bool
	// Durable has etcd wait until its data is on the disk, as that of a control plane does. Otherwise writes are faster, and
	// the data need not survive a crash of the machine.
	Durable bool
	// Progress, if not nil, gets lines when a step starts, while it runs, and when it ends.
	Progress io.Writer
}

// makeFolder returns the cluster's folder, and whether Stop must remove it.
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
	// It will have keys, so an existing folder gets these permissions as well.
	if err := os.Chmod(folder, 0o700); err != nil {
		return "", false, fmt.Errorf("closing folder %s to others: %w", folder, err)
	}
	return folder, false, nil
}

var errNotEmpty = errors.New("it is not empty")
