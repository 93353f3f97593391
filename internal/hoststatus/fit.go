package hoststatus

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Limits of a host's status, in bytes as the API server stores it. The largest servers
// stay well below MaxStatus. A host that nobody has approved gets little more than an
// administrator needs to approve it.
const (
	MaxStatus        = 64 << 10
	MaxPendingStatus = 4 << 10
)

// minCapabilities is how many capabilities are kept in any case.
const minCapabilities = 16

// Fit cuts facts in the host's status until the status, with the conditions that follow from
// the facts, is within its limit: first the programs of Kubernetes and the preflight as a
// whole, and the snapshots of etcd and the certificates of a host that nobody has approved, then lists, then texts.
// It returns the size of the status in bytes, and whether it cut anything. It does not change
// the conditions.
func Fit(host *infrav1.ElementalHost, now metav1.Time) (size int, cut bool) {
	limit := MaxPendingStatus
	if host.Spec.Approval == infrav1.ApprovalApproved {
		limit = MaxStatus
	}
	if size = encodedSize(host, now); size <= limit {
		return size, false
	}
	// Nobody needs them to approve a host, and a part of the programs would be wrong.
	if host.Spec.Approval != infrav1.ApprovalApproved {
		host.Status.EtcdSnapshots, host.Status.EtcdSnapshotUpload, host.Status.Certificates = nil, nil, nil
	}
	if i := host.Status.Inventory; i != nil && (i.Kubernetes != nil || i.Preflight != nil) {
		i.Kubernetes, i.Preflight = nil, nil
		if size = encodedSize(host, now); size <= limit {
			return size, true
		}
	}
	for _, entries := range []int{32, 16, 8, 4, 2, 1} {
		cutLists(&host.Status, entries)
		if size = encodedSize(host, now); size <= limit {
			return size, true
		}
	}
	for _, length := range []int{128, 64, 32, 16, 8, 4} {
		for _, text := range texts(&host.Status) {
			*text = cutText(*text, length)
		}
		if size = encodedSize(host, now); size <= limit {
			break
		}
	}
	return size, true
}

// encodedSize returns the size of the status after Update.
func encodedSize(host *infrav1.ElementalHost, now metav1.Time) int {
	updated := *host
	updated.Status.Conditions = slices.Clone(host.Status.Conditions)
	Update(&updated, now)
	return Size(&updated)
}

// Size returns the size of the host's status in bytes, as the API server stores it.
func Size(host *infrav1.ElementalHost) int {
	raw, err := json.Marshal(host.Status)
	if err != nil {
		return 0 // a time outside of years 1 to 9999, which the API server refuses
	}
	return len(raw)
}

func cutLists(s *infrav1.ElementalHostStatus, n int) {
	s.Addresses = atMost(s.Addresses, n)
	if i := s.Inventory; i != nil {
		i.Disks, i.NICs = atMost(i.Disks, n), atMost(i.NICs, n)
		for k := range i.NICs {
			i.NICs[k].Addresses = atMost(i.NICs[k].Addresses, n)
		}
	}
	if s.Agent != nil {
		s.Agent.Capabilities = atMost(s.Agent.Capabilities, max(n, minCapabilities))
	}
	if s.Cleanliness != nil {
		s.Cleanliness.Leftovers = atMost(s.Cleanliness.Leftovers, n)
	}
	if s.Endpoint != nil && s.Endpoint.APIServer != nil {
		s.Endpoint.APIServer.CertificateNames = atMost(s.Endpoint.APIServer.CertificateNames, n)
	}
	if s.EtcdSnapshots != nil {
		s.EtcdSnapshots.Items = atMost(s.EtcdSnapshots.Items, n)
	}
	if s.Erasure != nil {
		s.Erasure.Disks = atMost(s.Erasure.Disks, n)
	}
}

func atMost[T any](list []T, n int) []T { return list[:min(n, len(list))] }

// texts returns the texts in which a host can store what it likes. Names of disks and
// interfaces are among them; addresses and IDs of operations are checked elsewhere, and Fit
// removes the programs of Kubernetes before it cuts texts.
func texts(s *infrav1.ElementalHostStatus) []*string {
	var all []*string
	add := func(t ...*string) { all = append(all, t...) }
	if i := s.Inventory; i != nil {
		add(&i.MachineID, &i.Architecture, &i.SMBIOS.Manufacturer, &i.SMBIOS.ProductName, &i.SMBIOS.SerialNumber, &i.SMBIOS.UUID,
			&i.CPU.Model, &i.OS.ID, &i.OS.VersionID, &i.OS.PrettyName, &i.OS.KernelVersion, &i.OS.Image)
		for k := range i.Disks {
			add(&i.Disks[k].Name, &i.Disks[k].Model, &i.Disks[k].Serial)
		}
		for k := range i.NICs {
			add(&i.NICs[k].Name, &i.NICs[k].MAC)
			for a := range i.NICs[k].Addresses {
				add(&i.NICs[k].Addresses[a])
			}
		}
	}
	for k := range s.Addresses {
		add(&s.Addresses[k].Address)
	}
	if a := s.Agent; a != nil {
		add(&a.Version, &a.BootID)
		for k := range a.Capabilities {
			add(&a.Capabilities[k])
		}
		if a.Update != nil {
			add(&a.Update.Version, &a.Update.Message)
		}
	}
	if c := s.Cleanliness; c != nil {
		for k := range c.Leftovers {
			add(&c.Leftovers[k])
		}
	}
	for k := range s.Operations {
		add(&s.Operations[k].Step, &s.Operations[k].Message)
	}
	if s.Bundle != nil {
		add(&s.Bundle.Message)
	}
	if e := s.EtcdSnapshots; e != nil && e.Failure != nil {
		add(&e.Failure.Message)
	}
	if u := s.EtcdSnapshotUpload; u != nil && u.Failure != nil {
		add(&u.Failure.Message)
	}
	if e := s.Erasure; e != nil {
		for k := range e.Disks {
			add(&e.Disks[k].Name, &e.Disks[k].Serial, &e.Disks[k].Message)
		}
	}
	return all
}

// cutText returns the first bytes of a text, up to the end of a character.
func cutText(text string, length int) string {
	if len(text) <= length {
		return text
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return strings.TrimSpace(text[:length])
}
