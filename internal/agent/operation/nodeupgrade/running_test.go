package nodeupgrade_test

import (
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// What runs on the machine follows from the files on its disk.

// kubeletVersion is that of the program, or "" if it does not run.
func (m *machine) kubeletVersion() string {
	version := strings.TrimPrefix(m.read("/usr/bin/kubelet"), "kubelet ")
	config := m.read("/var/lib/kubelet/config.yaml")
	isKnown := slices.Contains([]string{oldVersion, newVersion}, version)
	// An old kubelet does not read the configuration of a newer one.
	reads := config == kubeletConfig(oldVersion) || config == kubeletConfig(newVersion) && version == newVersion
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isRunning || !isKnown || !reads || slices.Contains(m.crashing, version) {
		return ""
	}
	return version
}

// crash makes images, and kubelets of these versions, end at once.
func (m *machine) crash(versions ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashing = versions
}

// run starts or stops the kubelet.
func (m *machine) run(isRunning bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isRunning = isRunning
}

// image returns the image of a static Pod that runs, or "".
func (m *machine) image(component string) string {
	image, err := staticpods.Parse([]byte(m.read(staticpods.Path(component))))
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || slices.Contains(m.crashing, image) {
		return ""
	}
	return image
}

// serverVersion is that of the host's API server, or of another host's for a worker; "" if
// it is not ready.
func (m *machine) serverVersion() string {
	if m.role == protocol.UpgradeWorker {
		return m.api.version
	}
	if m.image("etcd") == "" {
		return ""
	}
	_, version, _ := strings.Cut(m.image("kube-apiserver"), ":")
	return version
}
