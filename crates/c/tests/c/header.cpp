// The header in C++, with handles that close themselves. Arguments: IMAGE.
#include <diorite.h>

#include <fcntl.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static_assert(DIORITE_VERSION >= DIORITE_MAKE_VERSION(0, 1, 0), "the macros are constants");

namespace {

struct Close {
    void operator()(diorite_filesystem *filesystem) const { diorite_filesystem_close(filesystem); }
    void operator()(diorite_file *file) const { diorite_file_close(file); }
    void operator()(diorite_dir *dir) const { diorite_closedir(dir); }
};

template <typename T> using Handle = std::unique_ptr<T, Close>;

int64_t check(int64_t result)
{
    if (result < 0)
        throw std::runtime_error(diorite_error_message());
    return result;
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 2)
        return 2;
    const std::string version = std::to_string(DIORITE_VERSION_MAJOR) + "." + std::to_string(DIORITE_VERSION_MINOR) + "." +
                                std::to_string(DIORITE_VERSION_PATCH);
    if (version != diorite_version())
        throw std::runtime_error("the library has another version than the header");
    diorite_options options{};
    options.size = sizeof options;
    options.scheduler = "deadline";
    diorite_filesystem *filesystem_made = nullptr;
    check(diorite_filesystem_create(argv[1], 32 << 20, nullptr, &options, &filesystem_made));
    Handle<diorite_filesystem> filesystem(filesystem_made);
    diorite_file *file_made = nullptr;
    check(diorite_file_open(filesystem.get(), "/f", O_RDWR | O_CREAT, 0644, &file_made));
    Handle<diorite_file> file(file_made);
    const std::string text = "from C++";
    check(diorite_pwrite(file.get(), text.data(), text.size(), 0));
    check(diorite_fdatasync(file.get()));
    std::vector<char> back(text.size());
    check(diorite_pread(file.get(), back.data(), back.size(), 0));
    if (std::string(back.begin(), back.end()) != text)
        throw std::runtime_error("other content");
    try {
        check(diorite_unlink(filesystem.get(), "/none"));
        throw std::logic_error("a name that is not there was removed");
    } catch (const std::runtime_error &error) {
        if (diorite_error_kind() != DIORITE_KIND_NOT_FOUND)
            throw;
    }
    file.reset();
    check(diorite_filesystem_close(filesystem.release()));
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
