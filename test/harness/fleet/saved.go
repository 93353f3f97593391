package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// saved is what a host keeps while no fleet runs it.
type saved struct {
	Documents  map[string]string `json:"documents"`
	Hostname   string            `json:"hostname"`
	Installed  bool              `json:"installed,omitempty"`
	Stopped    bool              `json:"stopped,omitempty"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	Planned    time.Time         `json:"planned,omitzero"`
	BootID     string            `json:"bootID,omitempty"`
	Done       Done              `json:"done"`
}

// suspend stops the agent in order. The boot goes on when the host is switched on again. A bootstrap that has
// not ended goes on then.
func (h *Host) suspend() {
	h.power.Lock()
	defer h.power.Unlock()
	b := h.current()
	if b == nil {
		return
	}
	h.halt(b, true)
	if err := b.recordJob(); err != nil {
		h.fleet.settings.Log.Error("Could not record the end of a bootstrap", "virtualHost", h.Name, "error", err)
	}
	h.suspended = b.id
}

// recordJob records that the job has succeeded, which its agent no longer could. The boot is halted.
func (b *boot) recordJob() error {
	if !b.hasSucceeded() {
		return nil
	}
	document := (&executor{boot: b, mount: &mount{disk: &b.host.disk}}).journal(b.job.folder)
	at, err := document.Load()
	// A reset has removed the journal.
	if err != nil || at.BootID != b.id {
		return err
	}
	at.Done = true
	return document.Save(at)
}

// hasSucceeded reports whether the boot has run a bootstrap to its end.
func (b *boot) hasSucceeded() bool { return b.job != nil && b.job.err == nil }

// save writes Settings.Saved. All hosts are off.
func (f *Fleet) save() error {
	if f.settings.Saved == "" {
		return nil
	}
	hosts := map[string]saved{}
	for _, h := range f.hosts {
		hosts[h.Name] = saved{
			Documents: h.disk.documents, Hostname: h.disk.hostname, Installed: h.disk.installed, Stopped: h.disk.stopped,
			Kubernetes: h.disk.kubernetes, Planned: h.disk.planned, BootID: h.suspended, Done: h.done,
		}
	}
	text, err := json.Marshal(hosts)
	if err == nil {
		err = os.WriteFile(f.settings.Saved, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving hosts: %w", err)
	}
	return nil
}

// load reads Settings.Saved. No host has been on yet.
func (f *Fleet) load() error {
	if f.settings.Saved == "" {
		return nil
	}
	text, err := os.ReadFile(f.settings.Saved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	hosts := map[string]saved{}
	if err == nil {
		err = json.Unmarshal(text, &hosts)
	}
	if err != nil {
		return fmt.Errorf("reading the hosts that were saved: %w", err)
	}
	for _, h := range f.hosts {
		from, ok := hosts[h.Name]
		if !ok {
			return fmt.Errorf("reading the hosts that were saved: %s is not among them", h.Name)
		}
		h.disk.documents, h.disk.hostname, h.disk.installed, h.disk.stopped = from.Documents, from.Hostname, from.Installed, from.Stopped
		h.disk.kubernetes, h.disk.planned, h.suspended, h.done = from.Kubernetes, from.Planned, from.BootID, from.Done
	}
	return nil
}
