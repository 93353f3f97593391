package facts

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Limits of reported facts, in bytes and entries.
const (
	maxText         = 256
	maxCapabilities = 32
	maxCapability   = 63
	maxVersion      = 128
	// maxImage is that of infrav1.OSImage.
	maxImage = 512
	// trustDigestLength is that of protocol.TrustDigest.
	trustDigestLength = 16
)

// inventoryOf converts and bounds an inventory.
func inventoryOf(in protocol.Inventory) *infrav1.HostInventory {
	out := &infrav1.HostInventory{
		MachineID:    Text(in.MachineID),
		Architecture: Text(in.Architecture),
		SMBIOS: infrav1.HostSMBIOS{
			Manufacturer: Text(in.SMBIOS.Manufacturer),
			ProductName:  Text(in.SMBIOS.ProductName),
			SerialNumber: Text(in.SMBIOS.SerialNumber),
			UUID:         Text(in.SMBIOS.UUID),
		},
		CPU:         infrav1.HostCPU{Model: Text(in.CPU.Model), Cores: max(in.CPU.Cores, 0)},
		MemoryBytes: max(in.MemoryBytes, 0),
		OS: infrav1.HostOS{
			ID:            Text(in.OS.ID),
			VersionID:     Text(in.OS.VersionID),
			PrettyName:    Text(in.OS.PrettyName),
			KernelVersion: Text(in.OS.KernelVersion),
			Image:         bounded(in.OS.Image, maxImage),
		},
		Kubernetes: kubernetesOf(in.Kubernetes),
		Preflight:  preflightOf(in.Preflight),
	}
	for _, d := range in.Disks {
		if name := Text(d.Name); name != "" && len(out.Disks) < protocol.MaxDevices {
			out.Disks = append(out.Disks, infrav1.HostDisk{
				Name: name, SizeBytes: max(d.SizeBytes, 0), Rotational: d.Rotational, Model: Text(d.Model), Serial: Text(d.Serial),
			})
		}
	}
	for _, n := range in.NICs {
		if name := Text(n.Name); name != "" && len(out.NICs) < protocol.MaxDevices {
			out.NICs = append(out.NICs, infrav1.HostNIC{
				Name: name, MAC: Text(n.MAC), SpeedMbps: max(n.SpeedMbps, 0), DefaultRoute: n.DefaultRoute,
				Addresses: texts(n.Addresses, protocol.MaxDevices, maxText),
			})
		}
	}
	return out
}

// addressesOf converts addresses and leaves out invalid ones.
func addressesOf(in []protocol.Address) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	for _, a := range in {
		if len(out) == protocol.MaxDevices {
			break
		}
		switch a.Type {
		case protocol.AddressHostname:
			if name := Text(a.Address); name != "" {
				out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: name})
			}
		case protocol.AddressInternalIP, protocol.AddressExternalIP:
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(a.Type), Address: ip.String()})
			}
		}
	}
	return out
}

// agentOf converts a Hello. The agent's update, which is reported separately, is kept from
// before, which may be nil.
func agentOf(in protocol.Hello, before *infrav1.HostAgent, now time.Time) *infrav1.HostAgent {
	if before == nil {
		before = &infrav1.HostAgent{}
	}
	out := &infrav1.HostAgent{
		ClockSkewSeconds: skewOf(in.Time, before.ClockSkewSeconds, now),
		TrustDigest:      digestOf(in.TrustDigest),
		Update:           before.Update,
		Version:          Text(in.AgentVersion),
		Protocol:         int32(min(max(in.Protocol, 0), math.MaxInt32)),
		BootID:           Text(in.BootID),
	}
	for _, c := range in.Capabilities {
		if name := bounded(string(c), maxCapability); name != "" && len(out.Capabilities) < maxCapabilities {
			out.Capabilities = append(out.Capabilities, name)
		}
	}
	return out
}

// SetEnrolled sets the facts of an enrolment.
func SetEnrolled(host *infrav1.ElementalHost, in *protocol.EnrolRequest, now time.Time) {
	host.Status.Agent = agentOf(in.Hello, host.Status.Agent, now)
	host.Status.Inventory = inventoryOf(in.Inventory)
	host.Status.Addresses = addressesOf(in.Addresses)
	host.Status.Cleanliness = cleanlinessOf(in.Cleanliness)
}

// SetReported sets the facts of a report except operations and the endpoint. Facts that
// the report does not have stay as they are.
func SetReported(host *infrav1.ElementalHost, in *protocol.Report, now time.Time) {
	if in.Hello != nil {
		host.Status.Agent = agentOf(*in.Hello, host.Status.Agent, now)
	}
	if in.AgentUpdate != nil {
		if update := updateOf(*in.AgentUpdate); update != nil {
			if host.Status.Agent == nil {
				host.Status.Agent = &infrav1.HostAgent{}
			}
			host.Status.Agent.Update = update
		}
	}
	if in.Inventory != nil {
		host.Status.Inventory = inventoryOf(*in.Inventory)
	}
	if addresses := addressesOf(in.Addresses); len(addresses) > 0 {
		host.Status.Addresses = addresses
	}
	if in.Cleanliness != nil {
		host.Status.Cleanliness = cleanlinessOf(*in.Cleanliness)
	}
	if in.Bundle != nil {
		setBundle(host, *in.Bundle)
	}
	if in.EtcdSnapshots != nil {
		setEtcdSnapshots(host, *in.EtcdSnapshots)
	}
	if in.EtcdSnapshotUpload != nil {
		setEtcdSnapshotUpload(host, *in.EtcdSnapshotUpload)
	}
	if in.Certificates != nil {
		setCertificates(host, *in.Certificates)
	}
	if in.Successor != nil {
		host.Status.Successor = successorOf(*in.Successor)
	}
}

// SetConnection sets the connection state and, if it changed, the time of the change.
func SetConnection(host *infrav1.ElementalHost, state infrav1.ConnectionState, now time.Time) {
	if recorded := host.Status.Connection; recorded == nil || recorded.State != state {
		host.Status.Connection = &infrav1.HostConnection{State: state, Since: metav1.NewTime(now.Truncate(time.Second))}
	}
}

// skewOf returns how many seconds the host's clock is ahead, rounded to whole minutes.
// The recorded skew stays unless it changed by a minute or more, so that seconds
// cause no writes.
func skewOf(host *time.Time, recorded int64, now time.Time) int64 {
	if host == nil {
		return 0
	}
	minute := int64(time.Minute / time.Second)
	skew := int64(host.Sub(now) / time.Second)
	difference := skew - recorded
	switch {
	case -minute < skew && skew < minute:
		return 0
	case recorded != 0 && -minute < difference && difference < minute:
		return recorded
	default:
		return skew / minute * minute
	}
}

// digestOf returns a digest as protocol.TrustDigest makes it, or an empty string if it is
// invalid.
func digestOf(in string) string {
	if len(in) != trustDigestLength || strings.Trim(in, "0123456789abcdef") != "" {
		return ""
	}
	return in
}

// successorOf converts what a host says of its successor; nil if it has none.
func successorOf(in protocol.SuccessorReport) *infrav1.HostSuccessor {
	digest := digestOf(in.Digest)
	if digest == "" {
		return nil
	}
	return &infrav1.HostSuccessor{Digest: digest, Reached: new(in.Reached), Message: bounded(in.Message, protocol.MaxMessageBytes)}
}

// updateOf converts the result of an update of the agent; nil if it is invalid.
func updateOf(in protocol.AgentUpdate) *infrav1.AgentUpdate {
	version := bounded(in.Version, maxVersion)
	if version == "" || in.State != protocol.StateRunning && !in.State.Final() {
		return nil
	}
	return &infrav1.AgentUpdate{
		Version: version, State: infrav1.OperationState(in.State), Message: bounded(in.Message, protocol.MaxMessageBytes),
	}
}

// erasedOf converts and bounds the results of erasing disks.
func erasedOf(in []protocol.ErasedDisk) []infrav1.ErasedDisk {
	var out []infrav1.ErasedDisk
	for _, d := range in {
		name := Text(d.Name)
		switch d.Result {
		case protocol.Erased, protocol.ErasureKept, protocol.ErasureFails:
		default:
			continue
		}
		if name != "" && len(out) < protocol.MaxDevices {
			out = append(out, infrav1.ErasedDisk{
				Name: name, Serial: Text(d.Serial), SizeBytes: max(d.SizeBytes, 0),
				Result: infrav1.ErasureResult(d.Result), Message: Text(d.Message),
			})
		}
	}
	return out
}

// cleanlinessOf converts the leftovers of former nodes.
func cleanlinessOf(in protocol.Cleanliness) *infrav1.HostCleanliness {
	if in.Clean {
		return &infrav1.HostCleanliness{State: infrav1.CleanlinessClean}
	}
	return &infrav1.HostCleanliness{
		State:     infrav1.CleanlinessDirty,
		Leftovers: texts(in.Leftovers, protocol.MaxLeftovers, maxText),
	}
}

// MeaninglessSerial reports whether a serial number is a placeholder that manufacturers
// leave on whole series of boards.
func MeaninglessSerial(serial string) bool {
	return slices.Contains([]string{
		"", "none", "n/a", "na", "null", "unknown", "default string", "default", "invalid", "not specified", "not applicable",
		"not available", "to be filled by o.e.m.", "to be filled by o.e.m", "o.e.m.", "oem", "system serial number", "serial number",
		"chassis serial number", "empty", "0123456789", "123456789", "1234567890", "xxxxxxxxxx",
	}, strings.ToLower(serial)) || strings.Trim(serial, "0 .-_") == "" || strings.Trim(serial, "xX-") == ""
}
