package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

func encode(t *testing.T, m bundle.Manifest) string {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	m, _ := sample()
	text := encode(t, m)
	if got, err := bundle.Decode([]byte(text), bundle.DefaultLimits()); err != nil || encode(t, got) != text {
		t.Errorf("got %v, %v", got, err)
	}
	replace := func(old, replacement string) string { return strings.Replace(text, old, replacement, 1) }
	const foreign = "not in the form that `bundle build` writes"
	for name, test := range map[string]struct{ text, want string }{
		"empty":                       {"", foreign},
		"no JSON":                     {"format: 1\n", foreign},
		"no object":                   {"[]\n", foreign},
		"null":                        {"null\n", "it has format 0"},
		"truncated":                   {text[:len(text)-20], foreign},
		"trailing data":               {text + "{}", foreign},
		"other indentation":           {strings.ReplaceAll(text, "  ", "    "), foreign},
		"no format":                   {replace(`"format": 1,`, ""), "it has format 0, and this program reads format 1: build the bundle again"},
		"later format":                {replace(`"format": 1`, `"format": 2, "more": true`), "it has format 2, and this program reads format 1: update the program"},
		"unknown field":               {replace(`"format": 1`, `"format": 1, "more": true`), `unknown field "more"`},
		"unknown field of a file":     {replace(`"kind"`, `"uid": 0, "kind"`), `unknown field "uid"`},
		"field twice":                 {replace(`"format": 1`, `"format": 1, "architecture": "arm64"`), foreign},
		"other case":                  {replace(`"architecture"`, `"Architecture"`), foreign},
		"other architecture":          {replace(`"amd64"`, `"s390x"`), "use one of amd64, arm64"},
		"mode as a number":            {replace(`"0755"`, `493`), "cannot unmarshal number"},
		"mode that is not octal":      {replace(`"0755"`, `"0789"`), "0789"},
		"mode with too many bits":     {replace(`"0755"`, `"10755"`), "10755"},
		"mode in another form":        {replace(`"0755"`, `"755"`), foreign},
		"size that is no integer":     {replace(`"size": 5000`, `"size": 5e3`), foreign},
		"size that is no number":      {replace(`"size": 5000`, `"size": "5000"`), foreign},
		"size beyond 64 bits":         {replace(`"size": 5000`, `"size": 18446744073709551616`), foreign},
		"files that are no list":      {replace(`"files": [`, `"files": {`), foreign},
		"name with an escape":         {replace(`bin/kubeadm`, `bin\/kubeadm`), foreign},
		"more bytes than the limit":   {strings.Repeat(" ", 1<<20), "has more than 524288 bytes"},
		"nested deeper than anything": {strings.Repeat("[", 100000), foreign},
	} {
		if _, err := bundle.Decode([]byte(test.text), bundle.DefaultLimits()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	type change func(*bundle.Manifest, *bundle.Limits)
	// The files of the sample, by index.
	const kubeadm, containerd, image, unit = 0, 3, 5, 6
	file := func(i int, f func(*bundle.File)) change {
		return func(m *bundle.Manifest, _ *bundle.Limits) { f(&m.Files[i]) }
	}
	name := func(name string) change { return file(containerd, func(f *bundle.File) { f.Name = name }) }
	path := func(i int, path string) change { return file(i, func(f *bundle.File) { f.Path = path }) }
	for label, test := range map[string]struct {
		change change
		want   string
	}{
		"version without v":       {func(m *bundle.Manifest, _ *bundle.Limits) { m.KubernetesVersion = "1.36.3" }, "write it like v1.36.3"},
		"version with a zero":     {func(m *bundle.Manifest, _ *bundle.Limits) { m.KubernetesVersion = "v1.036.3" }, "write it like v1.36.3"},
		"version without an end":  {func(m *bundle.Manifest, _ *bundle.Limits) { m.KubernetesVersion = "v1.36.3-" + strings.Repeat("a", 60) }, "write it like v1.36.3"},
		"no version":              {func(m *bundle.Manifest, _ *bundle.Limits) { m.KubernetesVersion = "" }, "write it like v1.36.3"},
		"no files":                {func(m *bundle.Manifest, _ *bundle.Limits) { m.Files = nil }, "0 programs named kubeadm"},
		"no kubelet":              {func(m *bundle.Manifest, _ *bundle.Limits) { m.Files = append(m.Files[:2], m.Files[3:]...) }, "0 programs named kubelet"},
		"kubelet twice":           {path(kubeadm, "/usr/bin/kubelet"), "0 programs named kubeadm"},
		"another kubelet":         {path(1, "/usr/bin/kubelet"), "0 programs named kubectl"},
		"too many files":          {func(_ *bundle.Manifest, l *bundle.Limits) { l.Files = 6 }, "the limit is 6"},
		"too large a file":        {func(_ *bundle.Manifest, l *bundle.Limits) { l.FileBytes = 4999 }, "the limit is 4999"},
		"too much altogether":     {func(_ *bundle.Manifest, l *bundle.Limits) { l.UnpackedBytes = 5000 }, "more than 5000 bytes"},
		"order":                   {func(m *bundle.Manifest, _ *bundle.Limits) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] }, "twice or not in order"},
		"same name":               {func(m *bundle.Manifest, _ *bundle.Limits) { m.Files[4].Name = m.Files[3].Name }, "twice or not in order"},
		"same path":               {path(1, "/usr/local/bin/kubeadm"), "both belong at /usr/local/bin/kubeadm"},
		"name below a file":       {name("bin/kubelet/config"), "because \"bin/kubelet\" is a file"},
		"path below a file":       {path(1, "/usr/local/bin/kubeadm/kubectl"), "because \"bin/kubeadm\" is a file"},
		"name below a short file": {func(m *bundle.Manifest, _ *bundle.Limits) { m.Files[3].Name, m.Files[4].Name = "f", "f/a" }, "because \"f\" is a file"},
		"name below the manifest": {name("bundle.json/x"), "because \"the manifest\" is a file"},
		"name of the manifest":    {name("bundle.json"), "the manifest's name"},
		"blank name":              {name(""), "no part of a name"},
		"absolute name":           {name("/files/a"), "no part of a name"},
		"name with ..":            {name("files/../a"), "\"..\" is no part of a name"},
		"name with an empty part": {name("files//a"), "no part of a name"},
		"name of a folder":        {name("files/a/"), "no part of a name"},
		"hidden name":             {name("files/.a"), "\".a\" is no part of a name"},
		"name with a backslash":   {name(`files\a`), "no part of a name"},
		"name with a line break":  {name("files/a\n"), "no part of a name"},
		"name with a null":        {name("files/a\x00"), "no part of a name"},
		"name in other letters":   {name("files/ä"), "no part of a name"},
		"long name":               {name("files/" + strings.Repeat("a", 95)), "the limit is 100"},
		"negative size":           {file(image, func(f *bundle.File) { f.Size = -1 }), "its size is -1"},
		"upper-case digest":       {file(image, func(f *bundle.File) { f.SHA256 = strings.ToUpper(f.SHA256) }), "no SHA-256"},
		"short digest":            {file(image, func(f *bundle.File) { f.SHA256 = f.SHA256[1:] }), "no SHA-256"},
		"unknown kind":            {file(image, func(f *bundle.File) { f.Kind = "Script" }), "use Program, Unit, File or Image"},
		"image with a path":       {path(image, "/opt/image"), "leave the path out"},
		"image to execute":        {file(image, func(f *bundle.File) { f.Mode = 0o755 }), "can't have the mode 0755"},
		"setuid":                  {file(kubeadm, func(f *bundle.File) { f.Mode = 0o4755 }), "can't have the mode 4755"},
		"program not to execute":  {file(kubeadm, func(f *bundle.File) { f.Mode = 0o644 }), "can't have the mode 0644"},
		"all may write":           {file(containerd, func(f *bundle.File) { f.Mode = 0o666 }), "can't have the mode 0666"},
		"no path":                 {path(kubeadm, ""), "is not absolute"},
		"relative path":           {path(kubeadm, "usr/local/bin/kubeadm"), "is not absolute"},
		"path with ..":            {path(kubeadm, "/usr/local/bin/../../../etc/passwd"), "\"..\" is no part"},
		"unclean path":            {path(kubeadm, "/usr/local/bin//kubeadm"), "no part of a name"},
		"long path":               {path(kubeadm, "/opt/"+strings.Repeat("a", 200)), "the limit is 200"},
		"the folder itself":       {path(kubeadm, "/usr/local/bin"), "put it below one of /opt, /usr/bin, /usr/local/bin"},
		"a folder that begins so": {path(kubeadm, "/usr/local/binary/kubeadm"), "put it below one of"},
		"program elsewhere":       {path(kubeadm, "/usr/sbin/kubeadm"), "put it below one of"},
		"program as a unit":       {path(kubeadm, "/etc/systemd/system/kubeadm.service"), "put it below one of"},
		"file elsewhere":          {path(containerd, "/etc/passwd"), "put it below one of /etc/cni/net.d"},
		"static Pod":              {path(containerd, "/etc/kubernetes/manifests/pod.yaml"), "put it below one of"},
		"the agent":               {path(kubeadm, "/usr/local/bin/elemental-agent"), "the registration pins agents"},
		"the agent's unit":        {path(unit, "/etc/systemd/system/elemental-agent.service.d/x.conf"), "the registration pins agents"},
		"unit without a type":     {path(unit, "/etc/systemd/system/kubelet"), "no unit that systemd knows"},
		"drop-in of another type": {path(unit, "/etc/systemd/system/kubelet.service.d/x.service"), "no unit that systemd knows"},
		"drop-in too deep":        {path(unit, "/etc/systemd/system/kubelet.service.d/a/x.conf"), "no unit that systemd knows"},
		"wanted unit":             {path(unit, "/etc/systemd/system/multi-user.target.wants/x.service"), "no unit that systemd knows"},
	} {
		m, _ := sample()
		limits := bundle.DefaultLimits()
		test.change(&m, &limits)
		if err := m.Check(limits); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", label, err, test.want)
		}
	}
}

// What is allowed, beside the sample.
func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.36.0", "v1.37.0-rc.1", "v1.36.3+build.5"} {
		m, _ := sample()
		m.KubernetesVersion, m.Architecture = version, "arm64"
		if err := m.Check(bundle.DefaultLimits()); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
	m, _ := sample()
	for i, f := range []bundle.File{
		{Kind: bundle.KindProgram, Path: "/opt/cni/bin/bridge", Mode: 0o755},
		{Kind: bundle.KindProgram, Path: "/usr/bin/runc", Mode: 0o755},
		{Kind: bundle.KindProgram, Path: "/usr/local/sbin/runc", Mode: 0o755},
		{Kind: bundle.KindUnit, Path: "/usr/local/lib/systemd/system/containerd@1.socket", Mode: 0o644},
		{Kind: bundle.KindUnit, Path: "/etc/systemd/system/containerd.service.d/10-proxy.conf", Mode: 0o644},
		{Kind: bundle.KindFile, Path: "/etc/containerd/certs.d/registry.example.com:5000/hosts.toml", Mode: 0o644},
		{Kind: bundle.KindFile, Path: "/etc/containerd/certs.d/_default/key.pem", Mode: 0o600},
		{Kind: bundle.KindFile, Path: "/etc/modules-load.d/kubernetes.conf", Mode: 0o644},
		{Kind: bundle.KindFile, Path: "/etc/cni/net.d/10-bridge.conflist", Mode: 0o644},
		{Kind: bundle.KindFile, Path: "/opt/kubernetes/hook", Mode: 0o755},
	} {
		f.Name, f.SHA256 = fmt.Sprintf("x/%02d", i), digest("")
		m.Files = append(m.Files, f)
	}
	if err := m.Check(bundle.DefaultLimits()); err != nil {
		t.Error(err)
	}
}
