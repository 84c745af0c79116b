// A stand-in for NVRTC: the same functions, but what comes out is a shared object of the host, made by its C++ compiler from the same
// text behind device.h. For tests alone.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <regex>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {
struct Program {
    std::string text, name, log, image;
};

std::string folder() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void *>(&folder), &info) || !info.dli_fname) return ".";
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

std::string all_of(const std::string &path) {
    std::string text;
    if (FILE *file = std::fopen(path.c_str(), "rb")) {
        char part[65536];
        for (size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, n);
        std::fclose(file);
    }
    return text;
}

// Comments become blanks: a kernel in one is none.
std::string without_comments(const std::string &text) {
    std::string out = text;
    for (size_t i = 0; i + 1 < out.size(); ++i) {
        if (out[i] == '/' && out[i + 1] == '/')
            while (i < out.size() && out[i] != '\n') out[i++] = ' ';
        else if (out[i] == '/' && out[i + 1] == '*') {
            size_t end = out.find("*/", i + 2);
            end = end == std::string::npos ? out.size() : end + 2;
            for (; i < end; ++i)
                if (out[i] != '\n') out[i] = ' ';
        }
    }
    return out;
}
} // namespace

extern "C" {
char takt_emulated_compiler;

int nvrtcVersion(int *major, int *minor) { return *major = 0, *minor = 1, 0; }
int nvrtcGetNumSupportedArchs(int *count) { return *count = 1, 0; }
int nvrtcGetSupportedArchs(int *archs) { return *archs = 0, 0; }

int nvrtcCreateProgram(Program **program, const char *text, const char *name, int, const char *const *, const char *const *) {
    *program = new Program{text, name ? name : "kernel.cu", "", ""};
    return 0;
}

int nvrtcDestroyProgram(Program **program) {
    delete *program;
    *program = nullptr;
    return 0;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    char place[] = "/tmp/takt-emulated-XXXXXX";
    if (!mkdtemp(place)) return program->log = "no folder in /tmp", 2;
    const std::string at = place, source = at + "/" + "kernel.cpp", image = at + "/kernel.so", log = at + "/log";
    std::string text = "#line 1 \"" + program->name + "\"\n" + program->text + "\n";
    const std::string bare = without_comments(program->text);
    const std::regex kernel("__global__\\s+(?:static\\s+)?void\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?([A-Za-z_]\\w*)\\s*\\(");
    std::vector<std::string> seen;
    for (std::sregex_iterator it(bare.begin(), bare.end(), kernel), end; it != end; ++it) {
        const std::string name = (*it)[1];
        bool known = false;
        for (const std::string &other : seen) known |= other == name;
        if (!known) text += "TAKT_KERNEL(" + name + ")\n", seen.push_back(name);
    }
    if (FILE *file = std::fopen(source.c_str(), "wb")) {
        std::fwrite(text.data(), 1, text.size(), file);
        std::fclose(file);
    }
    std::vector<std::string> command = {"c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-ffp-contract=off",
                                        "-fvisibility=hidden", "-Wl,-Bsymbolic", "-include",
                                        folder() + "/device.h", "-o", image, source};
    for (int i = 0; i < count; ++i)
        if (!std::strncmp(options[i], "-D", 2)) command.push_back(options[i]);
    std::vector<char *> argv;
    for (std::string &part : command) argv.push_back(part.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(out, 1), dup2(out, 2);
        execvp("c++", argv.data());
        dprintf(2, "cannot start c++: %s\n", std::strerror(errno));
        _exit(127);
    }
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    program->log = all_of(log);
    program->image = all_of(image);
    for (const std::string &path : {source, image, log}) unlink(path.c_str());
    rmdir(place);
    return status == 0 && !program->image.empty() ? 0 : 6;
}

int nvrtcGetProgramLogSize(Program *program, size_t *size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program *program, char *log) {
    std::memcpy(log, program->log.c_str(), program->log.size() + 1);
    return 0;
}
int nvrtcGetCUBINSize(Program *program, size_t *size) { return *size = program->image.size(), 0; }
int nvrtcGetCUBIN(Program *program, char *image) {
    std::memcpy(image, program->image.data(), program->image.size());
    return 0;
}
int nvrtcGetPTXSize(Program *program, size_t *size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(Program *program, char *image) { return nvrtcGetCUBIN(program, image); }
}
