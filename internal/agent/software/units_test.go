package software_test

import (
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A masked unit is a link to /dev/null.
func TestMaskedUnit(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin/kubelet", "/opt/bin/kubelet")
	b.config("/usr/lib/systemd/system/kubelet.service", "ExecStart=/opt/bin/kubelet\n")
	b.config("/dev/null", "")
	b.link("/etc/systemd/system/kubelet.service", "/dev/null")
	if got := b.find().Kubelet.Path; got != "/usr/bin/kubelet" {
		t.Errorf("got %s", got)
	}
}

// The kubelet is the one that its unit starts, with drop-ins in systemd's order.
func TestKubeletOfTheUnit(t *testing.T) {
	t.Parallel()
	const unit, opt, local, usr = "kubelet.service", "/opt/bin/kubelet", "/usr/local/bin/kubelet", "/usr/bin/kubelet"
	start := func(command string) string { return "[Service]\nExecStart=" + command + " --config=x\n" }
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no unit":                   {nil, local},
		"a unit":                    {map[string]string{"/usr/lib/systemd/system/" + unit: start(usr)}, usr},
		"an older folder":           {map[string]string{"/lib/systemd/system/" + unit: start(opt)}, opt},
		"the administrator's":       {map[string]string{"/usr/lib/systemd/system/" + unit: start(usr), "/etc/systemd/system/" + unit: start(opt)}, opt},
		"prefixes":                  {map[string]string{"/etc/systemd/system/" + unit: start("-@!" + opt)}, opt},
		"quotes":                    {map[string]string{"/etc/systemd/system/" + unit: start(`"` + opt + `"`)}, opt},
		"spaces":                    {map[string]string{"/etc/systemd/system/" + unit: "ExecStart = " + opt + "\n"}, opt},
		"kubeadm's drop-in":         {map[string]string{"/lib/systemd/system/" + unit: start(usr), "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nEnvironment=A=b\nExecStart=\nExecStart=" + opt + " $X\n"}, opt},
		"a drop-in without command": {map[string]string{"/lib/systemd/system/" + unit: start(usr), "/etc/systemd/system/kubelet.service.d/20.conf": "[Service]\nEnvironment=A=b\n"}, usr},
		"the last drop-in": {map[string]string{
			"/etc/systemd/system/kubelet.service.d/10.conf": start(usr), "/usr/lib/systemd/system/kubelet.service.d/20.conf": start(opt),
		}, opt},
		"a hidden drop-in": {map[string]string{
			"/etc/systemd/system/kubelet.service.d/10.conf": start(usr), "/usr/lib/systemd/system/kubelet.service.d/10.conf": start(opt),
		}, usr},
		"no command":        {map[string]string{"/etc/systemd/system/" + unit: "[Service]\nExecStart=\n"}, local},
		"a shell":           {map[string]string{"/etc/systemd/system/" + unit: start("/bin/sh")}, local},
		"a missing program": {map[string]string{"/etc/systemd/system/" + unit: start("/srv/bin/kubelet")}, local},
		"a relative path":   {map[string]string{"/etc/systemd/system/" + unit: start("opt/bin/kubelet")}, local},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, opt, local, usr)
			for file, content := range test.files {
				b.config(file, content)
			}
			if got := b.find().Kubelet.Path; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestContainerRuntime(t *testing.T) {
	t.Parallel()
	const containerd, crio = protocol.RuntimeContainerd, protocol.RuntimeCRIO
	const containerdSocket, crioSocket = "/run/containerd/containerd.sock", "/run/crio/crio.sock"
	both := []string{"/usr/bin/containerd", "/usr/bin/crio"}
	enabled := map[string]string{"/etc/systemd/system/multi-user.target.wants/crio.service": ""}
	for name, test := range map[string]struct {
		programs []string
		files    map[string]string
		want     protocol.RuntimeName
		socket   string
	}{
		"none":                                {nil, nil, "", ""},
		"containerd":                          {both[:1], nil, containerd, containerdSocket},
		"CRI-O":                               {both[1:], nil, crio, crioSocket},
		"both":                                {both, nil, containerd, containerdSocket},
		"both, CRI-O is enabled":              {both, enabled, crio, crioSocket},
		"CRI-O is enabled, but not installed": {both[:1], enabled, containerd, containerdSocket},
		"another socket of containerd": {both[:1], map[string]string{
			"/etc/containerd/config.toml": "version = 3\naddress = '/not/this'\n[grpc]\n  uid = 0\n  address = '/run/k8s/c.sock' # ours\n[ttrpc]\n  address = '/nor/this'\n",
		}, containerd, "/run/k8s/c.sock"},
		"a blank socket": {both[:1], map[string]string{"/etc/containerd/config.toml": "[grpc]\naddress = \"\"\naddress =\naddress = \"/open\n"}, containerd, containerdSocket},
		"another socket of CRI-O": {both[1:], map[string]string{
			"/etc/crio/crio.conf": "[crio.api]\nlisten = \"/run/a.sock\"\n", "/etc/crio/crio.conf.d/10.conf": "[ crio.api ]\nlisten = \"/run/b.sock\"\n",
		}, crio, "/run/b.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, test.programs...)
			for file, content := range test.files {
				b.config(file, content)
			}
			if got := b.find().ContainerRuntime; got.Name != test.want || got.Socket != test.socket {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The kubelet merges the files of the folder that its unit names. Only these are the host's own.
func TestAllowsCgroupV1(t *testing.T) {
	t.Parallel()
	const unit, folder = "/usr/lib/systemd/system/kubelet.service", "/etc/kubernetes/kubelet.conf.d/"
	const starts = "ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=" + folder + "\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"no unit":            {nil, false},
		"no folder":          {map[string]string{unit: "ExecStart=/usr/bin/kubelet\n", folder + "1.conf": "failCgroupV1: false\n"}, false},
		"no file":            {map[string]string{unit: starts}, false},
		"allowed":            {map[string]string{unit: starts, folder + "1.conf": "kind: KubeletConfiguration\nfailCgroupV1: false\n"}, true},
		"allowed, JSON":      {map[string]string{unit: starts, folder + "1.conf": `{"failCgroupV1": false}`}, true},
		"JSON, in lines":     {map[string]string{unit: starts, folder + "1.conf": "{\n  \"failCgroupV1\": false\n}\n"}, true},
		"in a comment":       {map[string]string{unit: starts, folder + "1.conf": "# failCgroupV1: false\n"}, false},
		"refused":            {map[string]string{unit: starts, folder + "1.conf": "failCgroupV1: true\n"}, false},
		"refused later":      {map[string]string{unit: starts, folder + "1.conf": "failCgroupV1: false\n", folder + "2.conf": "failCgroupV1: true\n"}, false},
		"not read":           {map[string]string{unit: starts, folder + "1.yaml": "failCgroupV1: false\n"}, false},
		"in the environment": {map[string]string{unit: `Environment="ARGS=--config=x --config-dir=` + folder + `"` + "\n", folder + "1.conf": "failCgroupV1: false\n"}, true},
		"in a drop-in": {map[string]string{
			unit: "ExecStart=/usr/bin/kubelet\n", "/etc/systemd/system/kubelet.service.d/1.conf": starts, folder + "1.conf": "failCgroupV1: false\n",
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, "/usr/bin/kubelet")
			for file, content := range test.files {
				b.config(file, content)
			}
			if got := b.finder.AllowsCgroupV1(); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
