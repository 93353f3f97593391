package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
)

// deputies is how many Machines of the rogue's tenant name Secrets of others as their bootstrap data.
const deputies = 4

// guest is the rogue with what administrators have given it, or taken away from it.
type guest struct{ *rogue }

func (r guest) attempts() []attempt {
	return []attempt{
		{"enrol with the serial numbers of others", r.takeSerials},
		{"return after its deletion without a word", r.comeBack},
		{"use a long-lived token that was moved", r.useMovedToken},
		{"ask for keys and kubeconfigs as bootstrap data", r.askForKeys},
	}
}

// fitting is the inventory of a machine that most selectors match, and that has hardly any memory.
func fitting(serial string) map[string]any {
	return map[string]any{
		"architecture": "arm64", "cpu": map[string]any{"cores": 4}, "memoryBytes": 1 << 20,
		"disks": []any{map[string]any{"name": "sda", "sizeBytes": 1 << 40}}, "smbios": map[string]any{"serialNumber": serial},
	}
}

// shapeCapacity enrols hosts that wait for an approval, in the rogue's namespace and in those of others, and has them
// report hardware that machine templates look for, and as much of it as the document allows.
func (r guest) shapeCapacity(ctx context.Context, t *tally) error {
	most, err := r.huge("report")
	if err != nil {
		return err
	}
	for i, inventory := range []any{fitting(""), most["inventory"]} {
		for j, token := range []string{r.ManualToken, r.GuestManualToken, ""} {
			c, err := r.newCaller(source(60 + 10*i + j))
			if err != nil {
				return err
			}
			body := c.modest("boot")
			body["inventory"] = inventory
			if token == "" {
				body["previous"] = r.previous()
			}
			t.enrolled(c.repeat(ctx, request{operation: "enrol", token: token, body: body}, http.StatusServiceUnavailable))
			t.add(c.poll(ctx, "", "boot"))
			t.add(c.insist(ctx, request{operation: "report", body: map[string]any{"inventory": inventory}}))
			c.hangUp()
		}
	}
	return nil
}

// pry enrols, and asks for a plan and for the victim's bootstrap data.
func (c *caller) pry(ctx context.Context, t *tally, token string, body map[string]any) {
	t.enrolled(c.call(ctx, request{operation: "enrol", token: token, body: body}))
	t.add(c.poll(ctx, "", "boot"))
	t.add(c.insist(ctx, request{operation: "bootstrap", query: url.Values{"operation": {c.rogue.Victim.Operation}}}))
}

// takeSerials enrols with serial numbers of others and with tokens of registrations that are not theirs, twice with each.
func (r guest) takeSerials(ctx context.Context, t *tally) error {
	for i, token := range []string{r.GuestToken, r.ManualToken, r.GuestToken} {
		for j, serial := range r.Serials {
			c, err := r.newCaller(source(80 + 10*i + j))
			if err != nil {
				return err
			}
			body := c.modest("boot")
			body["inventory"] = fitting(serial)
			c.pry(ctx, t, token, body)
			c.hangUp()
		}
	}
	return nil
}

// comeBack enrols with the key of a deleted host, and leaves out that it was one.
func (r guest) comeBack(ctx context.Context, t *tally) error {
	key, err := x509.ParseECPrivateKey(r.DeletedKey)
	if err != nil {
		return fmt.Errorf("reading the key of a deleted host: %w", err)
	}
	c, err := r.callerWith(key, source(110))
	if err != nil {
		return err
	}
	defer c.hangUp()
	for range 2 {
		c.pry(ctx, t, r.Token, c.modest("boot"))
	}
	return nil
}

func (r guest) useMovedToken(ctx context.Context, t *tally) error {
	c, err := r.newCaller(source(111))
	if err != nil {
		return err
	}
	defer c.hangUp()
	c.pry(ctx, t, r.MovedToken, c.modest("boot"))
	return nil
}

// askForKeys enrols hosts for Machines whose bootstrap data is a Secret of others, and asks for the data.
func (r guest) askForKeys(ctx context.Context, t *tally) error {
	return each(ctx, deputies, deputies, func(ctx context.Context, i int) error {
		c, err := r.newCaller(source(112 + i))
		if err != nil {
			return err
		}
		defer c.hangUp()
		operation, err := c.awaitBootstrap(ctx, t, r.GuestToken, "boot")
		if err != nil {
			return err
		}
		for range 2 {
			t.add(c.insist(ctx, request{operation: "bootstrap", query: url.Values{"operation": {operation}}}))
		}
		return nil
	})
}
