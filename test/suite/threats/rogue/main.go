package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// assignment is what the program is told.
type assignment struct {
	// Server is the URL of the agent API, TrustBundle its CA certificates.
	Server      string `json:"server"`
	TrustBundle string `json:"trustBundle"`
	// Token enrols approved hosts, ManualToken pending ones. SingleToken may be used once.
	Token       string `json:"token,omitempty"`
	ManualToken string `json:"manualToken,omitempty"`
	SingleToken string `json:"singleToken,omitempty"`
	// Address is the address that the rogue's main host reports.
	Address string `json:"address,omitempty"`
	// FencedKey is the private key (SEC 1) of a host of the rogue's that its administrator has fenced.
	FencedKey []byte `json:"fencedKey,omitempty"`
	// DeletedKey is the private key (SEC 1) of a host of the rogue's that its administrator has deleted.
	DeletedKey []byte `json:"deletedKey,omitempty"`
	// MovedToken is a long-lived token whose Secret was created again a short time before it expires.
	MovedToken string `json:"movedToken,omitempty"`
	// GuestToken enrols approved hosts in a namespace of others, GuestManualToken pending ones. Neither is of the registration
	// of the others' hosts.
	GuestToken       string `json:"guestToken,omitempty"`
	GuestManualToken string `json:"guestManualToken,omitempty"`
	// Serials are the serial numbers of hosts that the others have declared there.
	Serials []string `json:"serials,omitempty"`
	// ForgedAddress is an address that the rogue hasn't.
	ForgedAddress string `json:"forgedAddress,omitempty"`
	// Victim is another tenant's host.
	Victim victim `json:"victim,omitzero"`
	// Secrets are texts that only answers to others may have.
	Secrets []string `json:"secrets,omitempty"`
	// Strangers is the number of keys without a token, each with an address of its own. A flood without strangers is that of
	// one enrolled host.
	Strangers int `json:"strangers,omitempty"`
	// Namespace is where strangers of a flood claim to come from.
	Namespace string `json:"namespace,omitempty"`
}

// victim is what the rogue has learned about another tenant's host: all but its private key.
type victim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	HostID    string `json:"hostID"`
	// Operation is the ID of the host's bootstrap.
	Operation string `json:"operation"`
	// PublicKey is in the form of the document's RotateRequest.
	PublicKey []byte `json:"publicKey"`
	// Address is the host's, and that of its cluster's endpoint, Port the endpoint's port.
	Address string `json:"address"`
	Port    int    `json:"port"`
	// VirtualIP is the endpoint of another cluster of the tenant.
	VirtualIP string `json:"virtualIP"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rogue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("say attempts or flood, and the file of the assignment")
	}
	raw, err := os.ReadFile(args[1])
	if err != nil {
		return fmt.Errorf("reading the assignment: %w", err)
	}
	var a assignment
	if err := json.Unmarshal(raw, &a); err != nil {
		return fmt.Errorf("reading the assignment: %w", err)
	}
	r, err := newRogue(ctx, a)
	if err != nil {
		return err
	}
	switch args[0] {
	case "attempts":
		return r.attempts(ctx, out)
	case "flood":
		return r.flood(ctx, out)
	default:
		return fmt.Errorf("%q is neither attempts nor flood", args[0])
	}
}
