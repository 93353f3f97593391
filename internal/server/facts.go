package server

import (
	"math"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Limits of what a host may say about itself. Everything beyond is cut off: a
// host with odd hardware is to be shown, not to be kept out.
const (
	maxText         = 256
	maxCapabilities = 32
	maxCapability   = 63
	maxVersion      = 128
	// trustDigestLength is that of protocol.TrustDigest.
	trustDigestLength = 16
)

// inventoryOf converts and bounds an inventory.
func inventoryOf(in protocol.Inventory) *infrav1.HostInventory {
	out := &infrav1.HostInventory{
		MachineID:    text(in.MachineID),
		Architecture: text(in.Architecture),
		SMBIOS: infrav1.HostSMBIOS{
			Manufacturer: text(in.SMBIOS.Manufacturer),
			ProductName:  text(in.SMBIOS.ProductName),
			SerialNumber: text(in.SMBIOS.SerialNumber),
			UUID:         text(in.SMBIOS.UUID),
		},
		CPU:         infrav1.HostCPU{Model: text(in.CPU.Model), Cores: max(in.CPU.Cores, 0)},
		MemoryBytes: max(in.MemoryBytes, 0),
		OS: infrav1.HostOS{
			ID:            text(in.OS.ID),
			VersionID:     text(in.OS.VersionID),
			PrettyName:    text(in.OS.PrettyName),
			KernelVersion: text(in.OS.KernelVersion),
		},
	}
	for _, d := range in.Disks {
		if name := text(d.Name); name != "" && len(out.Disks) < protocol.MaxDevices {
			out.Disks = append(out.Disks, infrav1.HostDisk{
				Name: name, SizeBytes: max(d.SizeBytes, 0), Rotational: d.Rotational, Model: text(d.Model), Serial: text(d.Serial),
			})
		}
	}
	for _, n := range in.NICs {
		if name := text(n.Name); name != "" && len(out.NICs) < protocol.MaxDevices {
			out.NICs = append(out.NICs, infrav1.HostNIC{
				Name: name, MAC: text(n.MAC), SpeedMbps: max(n.SpeedMbps, 0), DefaultRoute: n.DefaultRoute,
				Addresses: texts(n.Addresses, protocol.MaxDevices, maxText),
			})
		}
	}
	return out
}

// addressesOf converts addresses and leaves out those that are none.
func addressesOf(in []protocol.Address) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	for _, a := range in {
		if len(out) == protocol.MaxDevices {
			break
		}
		switch a.Type {
		case protocol.AddressHostname:
			if name := text(a.Address); name != "" {
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

// agentOf converts what an agent says of itself. What it says elsewhere is kept
// from before, which may be nil.
func agentOf(in protocol.Hello, before *infrav1.HostAgent, now time.Time) *infrav1.HostAgent {
	if before == nil {
		before = &infrav1.HostAgent{}
	}
	out := &infrav1.HostAgent{
		ClockSkewSeconds: skewOf(in.Time, before.ClockSkewSeconds, now),
		TrustDigest:      digestOf(in.TrustDigest),
		Update:           before.Update,
		Version:          text(in.AgentVersion),
		Protocol:         int32(min(max(in.Protocol, 0), math.MaxInt32)),
		BootID:           text(in.BootID),
	}
	for _, c := range in.Capabilities {
		if name := bounded(string(c), maxCapability); name != "" && len(out.Capabilities) < maxCapabilities {
			out.Capabilities = append(out.Capabilities, name)
		}
	}
	return out
}

// setEnrolled sets all that a host says of itself when it enrols.
func setEnrolled(host *infrav1.ElementalHost, in *protocol.EnrolRequest, now time.Time) {
	host.Status.Agent = agentOf(in.Hello, host.Status.Agent, now)
	host.Status.Inventory = inventoryOf(in.Inventory)
	host.Status.Addresses = addressesOf(in.Addresses)
	host.Status.Cleanliness = cleanlinessOf(in.Cleanliness)
}

// skewOf returns how far the host's clock is ahead in whole minutes, which are not
// changed for less than a minute: nobody is to be told about seconds.
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

// digestOf returns a digest of protocol.TrustDigest, or nothing if it is none.
func digestOf(in string) string {
	if len(in) != trustDigestLength || strings.Trim(in, "0123456789abcdef") != "" {
		return ""
	}
	return in
}

// updateOf converts how an update of the agent went; nil if it says nothing.
func updateOf(in protocol.AgentUpdate) *infrav1.AgentUpdate {
	version := bounded(in.Version, maxVersion)
	if version == "" || in.State != protocol.StateRunning && !in.State.Final() {
		return nil
	}
	return &infrav1.AgentUpdate{
		Version: version, State: infrav1.OperationState(in.State), Message: bounded(in.Message, protocol.MaxMessageBytes),
	}
}

// erasedOf converts and bounds what became of disks.
func erasedOf(in []protocol.ErasedDisk) []infrav1.ErasedDisk {
	var out []infrav1.ErasedDisk
	for _, d := range in {
		name := text(d.Name)
		switch d.Result {
		case protocol.Erased, protocol.ErasureKept, protocol.ErasureFails:
		default:
			continue
		}
		if name != "" && len(out) < protocol.MaxDevices {
			out = append(out, infrav1.ErasedDisk{
				Name: name, Serial: text(d.Serial), SizeBytes: max(d.SizeBytes, 0),
				Result: infrav1.ErasureResult(d.Result), Message: text(d.Message),
			})
		}
	}
	return out
}

// cleanlinessOf converts what an agent found of former nodes.
func cleanlinessOf(in protocol.Cleanliness) *infrav1.HostCleanliness {
	if in.Clean {
		return &infrav1.HostCleanliness{State: infrav1.CleanlinessClean}
	}
	return &infrav1.HostCleanliness{
		State:     infrav1.CleanlinessDirty,
		Leftovers: texts(in.Leftovers, protocol.MaxLeftovers, maxText),
	}
}

func texts(in []string, count, length int) []string {
	var out []string
	for _, t := range in {
		if t = bounded(t, length); t != "" && len(out) < count {
			out = append(out, t)
		}
	}
	return out
}

func text(in string) string { return bounded(in, maxText) }

// bounded returns valid, printable UTF-8 of at most limit bytes. Line breaks and
// tabs stay.
func bounded(in string, limit int) string {
	in = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(in, "\uFFFD"))
	in = strings.TrimSpace(in)
	if len(in) <= limit {
		return in
	}
	for limit > 0 && !utf8.RuneStart(in[limit]) {
		limit--
	}
	return strings.TrimSpace(in[:limit])
}
