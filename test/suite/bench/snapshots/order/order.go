// Package order has what the scenario snapshots and the command snapshotter tell each other, as JSON.
package order

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Order says what the command does.
type Order struct {
	// Root has the files of kubeadm, and State is the agent's state directory.
	Root, State string
	// IDs are the snapshots to take, one after the other.
	IDs []string
	// Grant permits the upload of the last one, for the Recipients. Without a URL nothing is uploaded.
	Grant      protocol.EtcdSnapshotGrant
	Recipients []string
}

// Outcome says what the command did.
type Outcome struct {
	// Taken is how long each snapshot took, and Uploaded how long the upload of Bytes took.
	Taken    []time.Duration
	Uploaded time.Duration
	Bytes    int64
	// Peak is the largest memory that the process has had, in bytes.
	Peak int64
}

// Peak returns the largest resident memory that this process has had, in bytes. Another process can't read that after the
// end, and what the kernel tells of ended ones includes the memory of their parent before exec.
func Peak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the largest memory of this process: %w", err)
	}
	_, rest, found := bytes.Cut(status, []byte("\nVmHWM:"))
	value, _, _ := bytes.Cut(rest, []byte("kB\n"))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	if !found || err != nil {
		return 0, errors.Join(errors.New("/proc/self/status has no line VmHWM"), err)
	}
	return n << 10, nil
}
