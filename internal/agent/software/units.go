package software

import (
	"path/filepath"
	"slices"
	"strings"
)

// unitDirs are systemd's folders of units. The first that has a file wins.
func unitDirs() []string {
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// isEnabled reports whether a unit starts at boot.
func (f files) isEnabled(unit string) bool {
	return len(f.glob("/etc/systemd/system/*.wants/"+unit)) > 0 || len(f.glob("/usr/lib/systemd/system/*.wants/"+unit)) > 0
}

// started returns the file that the program's unit starts, or "" if the unit is missing or
// starts something else, such as a shell.
func (f files) started(p program) string {
	if p.unit == "" {
		return ""
	}
	command := ""
	for _, name := range f.fragments(p.unit) {
		command = execStart(f.text(name), command)
	}
	// Prefixes change how systemd starts the program.
	command = strings.Trim(strings.TrimLeft(command, "@-:+!"), `"'`)
	if !filepath.IsAbs(command) || filepath.Base(command) != p.name {
		return ""
	}
	return filepath.Clean(command)
}

// fragments returns the file of a unit and its drop-ins, in the order in which systemd
// applies them: drop-ins by their names, wherever they are.
func (f files) fragments(unit string) []string {
	dropIns := map[string]string{}
	var bases, found []string
	for _, dir := range unitDirs() {
		if name := dir + "/" + unit; len(found) == 0 && len(f.glob(name)) > 0 {
			found = append(found, name)
		}
		for _, name := range f.glob(dir + "/" + unit + ".d/*.conf") {
			base := filepath.Base(name)
			if _, isHidden := dropIns[base]; !isHidden {
				dropIns[base] = name
				bases = append(bases, base)
			}
		}
	}
	slices.Sort(bases)
	for _, base := range bases {
		found = append(found, dropIns[base])
	}
	return found
}

// execStart returns the program of the last ExecStart in a fragment, or former if it has
// none. A blank ExecStart removes those before it.
func execStart(fragment, former string) string {
	for line := range strings.Lines(fragment) {
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(key) != "ExecStart" {
			continue
		}
		former = ""
		if words := strings.Fields(value); len(words) > 0 {
			former = words[0]
		}
	}
	return former
}
