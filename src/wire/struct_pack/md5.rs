//! MD5 that the compiler can evaluate.
//!
//! Type codes and function ids are the head of an MD5 sum. They depend only on types and names, so they are computed
//! while compiling: a code is then an immediate in the decoder, and a `match` on function ids is a match on constants.
//! No published crate offers MD5 as a `const fn`; a test compares this one with the `md-5` crate.

/// Left rotations of the four rounds.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The additive constants: the first 32 bits of the fraction of |sin(i + 1)|, as RFC 1321 tabulates them.
const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
];

/// Returns the byte at `index` of the padded message: the message, 0x80, zeros, the length in bits.
const fn padded(message: &[u8], index: usize, total: usize) -> u8 {
    if index < message.len() {
        message[index]
    } else if index == message.len() {
        0x80
    } else if index >= total - 8 {
        ((message.len() as u64 * 8) >> (8 * (index - (total - 8)))) as u8
    } else {
        0
    }
}

/// Returns the first four bytes of the MD5 sum of `message`, read as a big-endian number.
pub const fn head(message: &[u8]) -> u32 {
    let total = (message.len() + 8) / 64 * 64 + 64;
    let mut state: [u32; 4] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
    let mut block = 0;
    while block < total {
        let mut words = [0u32; 16];
        let mut word = 0;
        while word < 16 {
            let at = block + word * 4;
            words[word] = u32::from_le_bytes([
                padded(message, at, total),
                padded(message, at + 1, total),
                padded(message, at + 2, total),
                padded(message, at + 3, total),
            ]);
            word += 1;
        }
        let [mut a, mut b, mut c, mut d] = state;
        let mut step = 0;
        while step < 64 {
            let (mixed, source) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(words[source]);
            a = d;
            d = c;
            c = b;
            b = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
            step += 1;
        }
        state[0] = state[0].wrapping_add(a);
        state[1] = state[1].wrapping_add(b);
        state[2] = state[2].wrapping_add(c);
        state[3] = state[3].wrapping_add(d);
        block += 64;
    }
    // The sum is the state in little-endian bytes, so its head read as big-endian is the first word swapped.
    state[0].swap_bytes()
}

#[cfg(test)]
mod tests {
    use super::head;
    use md5::{Digest, Md5};

    #[test]
    fn agrees_with_the_md5_crate_at_every_padding_length() {
        let message: Vec<u8> = (0..300u32).map(|i| (i * 7 + 3) as u8).collect();
        for length in 0..message.len() {
            let sum = Md5::digest(&message[..length]);
            let expected = u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]);
            assert_eq!(head(&message[..length]), expected, "length {length}");
        }
    }
}
